//! Servers over a session: the PostgreSQL protocol, Flight SQL, metrics and a status page.
