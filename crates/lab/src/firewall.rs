//! NAT and firewall of a private cluster's gateways, in the words of `nft`.
//!
//! The kernel does both, in the gateway's own network namespace. NAT takes a port at random for
//! each connection (what comes back must come from where the connection went to), and neither it
//! nor the firewall takes a segment in the midst of a connection that it has forgotten for a new
//! one: what was idle for too long is dropped in silence, as most sites' devices do.

use crate::private::{Firewall, Private};
use std::fmt::Write as _;

/// The rules of gateway `number` (from 1); none: it needs none.
#[must_use]
pub fn rules(private: &Private, number: u8) -> Option<String> {
    let nat = private.nat && number == 1;
    let closed = private.firewall == Firewall::Outbound;
    if !nat && !closed {
        return None;
    }
    let mut text = format!("table ip lab {{\n{}", timeouts(private.timeout.as_secs()));
    if closed {
        text += CLOSED;
    }
    if nat {
        let _ = write!(text, "{FORWARD}{}", masquerade(private));
    }
    text += "}\n";
    Some(text)
}

/// How long the kernel remembers what is idle.
fn timeouts(seconds: u64) -> String {
    let policy = |name: &str, protocol: &str, states: &[&str]| {
        let states: Vec<_> = states.iter().map(|state| format!("{state}: {seconds}")).collect();
        format!(
            "ct timeout {name} {{\nprotocol {protocol}\nl3proto ip\npolicy = {{ {} }}\n}}\n",
            states.join(", ")
        )
    };
    let chain = |name: &str, hook: &str| {
        format!(
            "chain {name} {{\ntype filter hook {hook} priority -150; policy accept;\n\
             meta l4proto tcp ct timeout set \"idle-tcp\"\n\
             meta l4proto udp ct timeout set \"idle-udp\"\n}}\n"
        )
    };
    [
        policy("idle-tcp", "tcp", &["established"]),
        policy("idle-udp", "udp", &["unreplied", "replied"]),
        chain("coming", "prerouting"),
        chain("own", "output"),
    ]
    .concat()
}

/// From the wide area only answers; and the gateway's own programs must begin with a handshake.
const CLOSED: &str = "\
chain in {
type filter hook input priority 0; policy accept;
iifname \"eth1\" ct state established,related accept
iifname \"eth1\" drop
}
chain out {
type filter hook output priority 0; policy accept;
oifname \"eth1\" ct state new tcp flags & (fin|syn|rst|ack) != syn drop
}
";

const FORWARD: &str = "\
chain through {
type filter hook forward priority 0; policy drop;
ct state established,related accept
ct state new tcp flags & (fin|syn|rst|ack) != syn drop
iifname \"eth0\" oifname \"eth1\" ct state new accept
}
";

fn masquerade(private: &Private) -> String {
    format!(
        "chain leaving {{\ntype nat hook postrouting priority 100; policy accept;\n\
         oifname \"eth1\" ip saddr {} masquerade fully-random\n}}\n",
        private.network
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    fn rules_of(text: &str, number: u8) -> Option<String> {
        let text =
            format!("[[cluster]]\nname = \"a\"\nnodes = 1\nprivate = true\ngateways = 2\n{text}");
        let spec = Spec::parse(&text, "t", "t").unwrap();
        rules(spec.private(0).unwrap(), number)
    }

    #[test]
    fn only_what_was_asked_for_is_built() {
        assert_eq!(rules_of("firewall = \"open\"\n", 1), None);
        let nat = "nat = true\nnat_timeout = \"7 s\"\n";
        let first = rules_of(&format!("{nat}firewall = \"open\"\n"), 1).unwrap();
        assert!(first.contains("masquerade") && !first.contains("hook input"), "{first}");
        assert!(first.contains("established: 7 }") && first.contains("replied: 7"), "{first}");
        // Only the first gateway is the nodes' way out.
        assert_eq!(rules_of(&format!("{nat}firewall = \"open\"\n"), 2), None);
        let second = rules_of(nat, 2).unwrap();
        assert!(second.contains("hook input") && !second.contains("masquerade"), "{second}");
    }
}
