//! Warpline's physical planner: what runs on the GPU, as which pipelines.
