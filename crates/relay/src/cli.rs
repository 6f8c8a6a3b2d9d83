//! The command line: `gridmpi relay ...`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::config::{Config, Peer, Proof, Token};
use crate::daemon::Daemon;
use crate::secret::read_secret;

/// Carries traffic between clusters whose processes cannot connect to each other.
#[derive(Debug, Parser)]
pub struct Args {
    /// Where to listen; may be repeated.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7118")]
    listen: Vec<SocketAddr>,
    /// A file with a token (64 hexadecimal digits, mode 0600): who knows it may use the relay. May be repeated; `/dev/stdin`
    /// works too.
    #[arg(long, value_name = "FILE", required = true)]
    token_file: Vec<PathBuf>,
    /// Another relay to connect to; may be repeated.
    #[arg(long, value_name = "HOST:PORT", requires = "secret_file")]
    peer: Vec<String>,
    /// A file with the secret that proves relays to each other where there is no TLS. What they carry is NOT ENCRYPTED then.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

/// Serves until it is told to end.
pub fn run(args: Args) -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match config(args).and_then(|config| Daemon::new(config)?.run().map_err(Into::into)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gridmpi: {error}");
            ExitCode::FAILURE
        }
    }
}

fn config(args: Args) -> Result<Config, Box<dyn std::error::Error>> {
    let mut config = Config { listen: args.listen, ..Config::default() };
    for path in args.token_file {
        let key = read_secret(&path)?;
        config.tokens.push(Token { name: path.display().to_string(), key, jobs: None });
    }
    if let Some(path) = args.secret_file {
        let secret = read_secret(&path)?;
        let peer = |address: Option<String>| Peer {
            name: address.clone().unwrap_or_else(|| "those who dial".to_owned()),
            address,
            proof: Proof::Secret(secret.clone()),
            connections: 1,
            rate: None,
        };
        config.peers.push(peer(None));
        config.peers.extend(args.peer.into_iter().map(|address| peer(Some(address))));
    }
    Ok(config)
}
