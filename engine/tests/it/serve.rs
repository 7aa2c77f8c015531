//! `warpline serve`: what it refuses to start with, and users.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use super::{run, run_in};

#[test]
fn a_server_that_others_could_misuse_does_not_start() {
    run(&["serve"]).fails_with(&["--postgres", "--flight"]);
    run(&["serve", "--postgres", "0.0.0.0:0"]).fails_with(&["--auth", "--tls-cert", "--insecure"]);
    run(&["serve", "--flight", "0.0.0.0:0"]).fails_with(&["--auth", "--tls-cert", "--insecure"]);
    run(&["serve", "--postgres", "127.0.0.1:0", "--data", "nowhere"]).fails_with(&["nowhere"]);
    run(&["serve", "--postgres", "127.0.0.1:0", "--auth", "nowhere"]).fails_with(&["nowhere"]);
    run(&["serve", "--postgres", "here"]).refuses_with(&["--postgres"]);
    run(&["serve", "--tls-cert", "x"]).refuses_with(&["--tls-key"]);
    run(&["serve", "--add-user", "x"]).refuses_with(&["--auth"]);
}

#[test]
fn users_are_added_without_their_passwords() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["serve", "--auth", "users", "--add-user", "ada"];
    let outcome = run_in(folder.path(), &arguments, "lovelace\n").ok();
    assert!(outcome.stderr.contains("ada"), "{}", outcome.stderr);
    let text = fs::read_to_string(folder.path().join("users")).expect("the file");
    assert!(text.starts_with("ada SCRAM-SHA-256$4096:"), "{text}");
    assert!(!text.contains("lovelace"), "{text}");
    let broken = [
        "serve",
        "--postgres",
        "127.0.0.1:0",
        "--auth",
        "users",
        "--tls-cert",
        "users",
        "--tls-key",
        "users",
    ];
    run_in(folder.path(), &broken, "").fails_with(&["TLS"]);
}

#[test]
fn a_server_says_where_it_listens() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_warpline"))
        .args(["serve", "--device", "cpu"])
        .args(["--postgres", "127.0.0.1:0", "--flight", "127.0.0.1:0"])
        .args(["--http", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let lines = BufReader::new(server.stdout.take().expect("its output")).lines();
    let mut found = Vec::new();
    for line in lines.map_while(Result::ok) {
        let Some((scheme, address)) = line.split_once("://") else {
            continue;
        };
        let address: SocketAddr = address.parse().expect(&line);
        TcpStream::connect(address).expect(&line);
        found.push(
            scheme
                .split_whitespace()
                .map(str::to_string)
                .collect::<Vec<_>>(),
        );
        if found.len() == 3 {
            break;
        }
    }
    server.kill().expect("it runs");
    server.wait().expect("it ends");
    let named = [
        ["postgresql", "postgresql"],
        ["flight", "grpc"],
        ["page", "http"],
    ];
    assert_eq!(found, named);
}
