-- Settings of each connection to a server.
SET search_path = crushpy, public;
SET client_encoding = 'UTF8';
SET jit = off;
SET lock_timeout = '60s';
SET idle_in_transaction_session_timeout = '60s'
