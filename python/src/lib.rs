//! The Python package: sessions, results and tables over Arrow's C interfaces.
