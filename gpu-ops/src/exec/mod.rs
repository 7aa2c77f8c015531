//! Running fragments: the DataFusion node, loading, launching and finishing.
