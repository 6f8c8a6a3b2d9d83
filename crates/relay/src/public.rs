//! A relay on a host that everybody reaches, at which relays of several sites meet: where it listens, and what the others must be told.

use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use socket2::{Domain, Socket, Type};

use crate::file::{LISTEN, default_paths};
use crate::identity::IdentityError;
use crate::tls::{Fingerprint, Identity};

/// More are of no use to anybody.
const MOST: usize = 8;

/// All addresses of this machine, of both families where it has both.
pub(crate) fn listen() -> SocketAddr {
    let v4: SocketAddr = LISTEN.parse().unwrap_or_else(|_| ([0, 0, 0, 0], 7118).into());
    let takes_both =
        Socket::new(Domain::IPV6, Type::STREAM, None).and_then(|socket| socket.only_v6());
    match takes_both {
        Ok(false) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), v4.port()),
        _ => v4,
    }
}

/// The identity in `directory`, or in that of the settings; made if there is none.
///
/// # Errors
/// It can be neither read nor made.
pub(crate) fn identity(directory: Option<&Path>) -> Result<(Identity, PathBuf), IdentityError> {
    let usual = || {
        let paths = default_paths();
        let own = if rustix::process::geteuid().is_root() { paths.first() } else { paths.last() };
        own.and_then(|path| path.parent()).unwrap_or(Path::new(".")).to_owned()
    };
    let directory = directory.map_or_else(usual, Path::to_owned);
    let identity = match Identity::load(&directory) {
        Err(IdentityError::Missing(_)) => Identity::create(&directory),
        other => other,
    };
    Ok((identity?, directory))
}

/// Where others may reach a relay that listens there.
pub(crate) fn reachable(listen: &[SocketAddr]) -> Vec<SocketAddr> {
    let own = own_addresses();
    let mut found = Vec::new();
    for at in listen {
        let all = at.ip().is_unspecified();
        let fits = |ip: &&IpAddr| all && (ip.is_ipv4() || at.is_ipv6());
        found.extend(own.iter().filter(fits).map(|ip| SocketAddr::new(*ip, at.port())));
        if !all {
            found.push(*at);
        }
    }
    found.truncate(MOST);
    found
}

/// Addresses of this machine that others may know, those of IPv4 first.
fn own_addresses() -> Vec<IpAddr> {
    let all = getifaddrs().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    let up = all.iter().filter(|one| one.flags.contains(InterfaceFlags::IFF_UP));
    let addresses = up.filter_map(|one| one.address.as_ref()).filter_map(|address| {
        let v4 = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
    });
    let is_useful = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let mut found: Vec<IpAddr> = addresses.filter(is_useful).collect();
    found.sort_by_key(IpAddr::is_ipv6);
    found.dedup();
    found
}

/// What the others have to write into their files, ready to be copied.
pub(crate) fn lines(at: &[SocketAddr], fingerprint: &Fingerprint, tokens: &[PathBuf]) -> String {
    let first = at.first().map_or_else(|| "HOST:7118".to_owned(), ToString::to_string);
    let mut text = String::new();
    let others: Vec<_> = at.iter().skip(1).map(ToString::to_string).collect();
    let or = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
    let _ = writeln!(
        text,
        "# For each relay that is to meet others here, in its relay.toml; the address is whatever it reaches this machine by{or}:\n\
         [[peer]]\nname = \"public\"\naddress = \"{first}\"\nfingerprint = \"{fingerprint}\"\n\
         # by hand: --peer {first}={fingerprint}"
    );
    for token in tokens {
        let _ = writeln!(
            text,
            "# For a cluster whose processes reach this machine, and for [job], in the job file, with a copy of the token:\n\
             relays = [\"{first}\"]\nrelay_token = \"{}\"",
            token.display()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_can_be_copied_into_settings() {
        let at = ["192.0.2.5:7118".parse().unwrap(), "[2001:db8::5]:7118".parse().unwrap()];
        let fingerprint = Fingerprint([0x2c; 32]);
        let text = lines(&at, &fingerprint, &[PathBuf::from("site.token")]);
        assert!(
            text.contains("[2001:db8::5]:7118") && text.contains("relay_token = \"site.token\""),
            "{text}"
        );
        let directory = std::env::temp_dir().join(format!("gridmpi-public-{}", std::process::id()));
        let (made, at_first) = identity(Some(&directory)).unwrap();
        let (again, _) = identity(Some(&directory)).unwrap();
        assert_eq!((made.fingerprint(), &at_first), (again.fingerprint(), &directory));
        let text = format!("[relay]\nidentity = \".\"\n{}", lines(&at, &fingerprint, &[]));
        let peer = crate::parse("relay.toml", &text, &directory).unwrap().config.peers.remove(0);
        assert_eq!(peer.address.as_deref(), Some("192.0.2.5:7118"));
        assert!(matches!(peer.proof, crate::Proof::Fingerprint(said) if said == fingerprint));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn one_address_that_was_chosen_is_the_one_that_is_told() {
        let at: SocketAddr = "192.0.2.5:9".parse().unwrap();
        assert_eq!(reachable(&[at]), [at]);
        let all = reachable(&["0.0.0.0:9".parse().unwrap()]);
        assert!(all.iter().all(|at| at.is_ipv4() && at.port() == 9 && !at.ip().is_loopback()));
    }
}
