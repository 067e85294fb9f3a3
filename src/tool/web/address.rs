//! Whether an address may be connected to: the public net, and inside only what a rule names.
//!
//! A page can name any host, and a host can have any address: the router, a database of this machine, the metadata
//! service of a cloud that hands out keys. Values in, values out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;

/// Whether one of the rules names exactly this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tool) enum Named {
    ByRule,
    No,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::tool) enum Refused {
    #[error(
        "`{host}` is inside: {address} is no public address; a person can allow it with the rule `web_fetch({host})`"
    )]
    Inside { host: String, address: IpAddr },
    #[error("`{host}` is a public name for {address}, which is no public address; this is refused whatever rules say")]
    Disguised { host: String, address: IpAddr },
    #[error("`{host}` has no address")]
    None { host: String },
}

/// Refuses a host if any of its addresses leads inside. A name that has both kinds is an attempt to get in.
pub(in crate::tool) fn check(url: &Url, addresses: &[SocketAddr], named: Named) -> Result<(), Refused> {
    let host = url.host_str().unwrap_or_default().to_owned();
    if addresses.is_empty() {
        return Err(Refused::None { host });
    }
    let Some(inside) = addresses.iter().map(SocketAddr::ip).find(|address| !is_public(*address)) else { return Ok(()) };
    let is_literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    let all_loopback = || addresses.iter().all(|address| plain(address.ip()).is_loopback());
    let says_so = is_literal || (host == "localhost" && all_loopback());
    match (says_so, named) {
        (true, Named::ByRule) => Ok(()),
        (true, Named::No) => Err(Refused::Inside { host, address: inside }),
        (false, Named::ByRule | Named::No) => Err(Refused::Disguised { host, address: inside }),
    }
}

fn is_public(address: IpAddr) -> bool {
    match plain(address) {
        IpAddr::V4(address) => is_public_4(address),
        IpAddr::V6(address) => is_public_6(address),
    }
}

/// An IPv4 address that is written as IPv6 is the IPv4 address.
fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4),
    }
}

fn is_public_4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match (a, b, c) {
        // This network, loopback, multicast, reserved, broadcast.
        (0 | 127 | 224.., _, _) => true,
        // Shared by carriers; also the metadata of one cloud.
        (100, 64..=127, _) => true,
        // Protocol assignments, documentation, relays, benchmarks.
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 18 | 19, _) | (198, 51, 100) | (203, 0, 113) => true,
        _ => false,
    };
    // The last one is public by its number and the inside of a cloud by its meaning.
    let wire_server = Ipv4Addr::new(168, 63, 129, 16);
    !(special || address.is_private() || address.is_link_local() || address == wire_server)
}

fn is_public_6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let four = |high: u16, low: u16| {
        let ([first, second], [third, fourth]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(first, second, third, fourth)
    };
    match (parts[0], parts[1]) {
        // Translated to IPv4 on the way.
        (0x64, 0xff9b) => parts[2..6] == [0; 4] && is_public_4(four(parts[6], parts[7])),
        (0x2002, _) => is_public_4(four(parts[1], parts[2])),
        // Teredo and other protocol assignments, documentation.
        (0x2001, 0..=0x1ff | 0xdb8) | (0x3fff, 0..=0xfff) => false,
        // Only this eighth of the space is given out.
        (0x2000..=0x3fff, _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(url: &str, addresses: &[&str], named: Named) -> Result<(), Refused> {
        let addresses: Vec<SocketAddr> =
            addresses.iter().map(|address| SocketAddr::new(address.parse().unwrap(), 80)).collect();
        check(&Url::parse(url).unwrap(), &addresses, named)
    }

    #[test]
    fn the_public_net_is_free() {
        for address in ["93.184.215.14", "1.1.1.1", "100.128.0.1", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"] {
            assert_eq!(judged("https://example.com/", &[address], Named::No), Ok(()), "{address}");
        }
        assert_eq!(judged("http://[64:ff9b::101:101]/", &["64:ff9b::101:101"], Named::No), Ok(()));
    }

    #[test]
    fn a_public_name_never_leads_inside() {
        for address in [
            "127.0.0.1",
            "127.1.2.3",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "fec0::1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::",
            "2001::1",
            "2001:db8::1",
        ] {
            for named in [Named::No, Named::ByRule] {
                let refused = judged("https://rebind.example/", &["93.184.215.14", address], named);
                assert!(matches!(refused, Err(Refused::Disguised { .. })), "{address}: {refused:?}");
            }
        }
    }

    #[test]
    fn a_literal_address_inside_needs_a_rule_that_names_it() {
        for (url, address) in [
            ("http://localhost:8080/", "127.0.0.1"),
            ("http://localhost/", "::1"),
            ("http://2130706433/", "127.0.0.1"),
            ("http://[::1]/", "::1"),
            ("http://192.168.1.1/", "192.168.1.1"),
            ("http://169.254.169.254/latest/meta-data", "169.254.169.254"),
        ] {
            let refused = judged(url, &[address], Named::No);
            assert!(matches!(&refused, Err(Refused::Inside { .. })), "{url}: {refused:?}");
            assert_eq!(judged(url, &[address], Named::ByRule), Ok(()), "{url}");
        }
    }

    #[test]
    fn localhost_that_is_somewhere_else_is_a_disguise() {
        let refused = judged("http://localhost/", &["127.0.0.1", "192.168.1.1"], Named::ByRule);
        assert!(matches!(refused, Err(Refused::Disguised { .. })), "{refused:?}");
        assert!(matches!(
            judged("http://localhost.example/", &["127.0.0.1"], Named::ByRule),
            Err(Refused::Disguised { .. })
        ));
        assert_eq!(judged("http://x.example/", &[], Named::No), Err(Refused::None { host: "x.example".to_owned() }));
    }
}
