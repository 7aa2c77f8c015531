//! From a pipeline and the encodings of its columns to one CUDA C++ kernel.
