//! DNS packets, as anybody may send them to the agent's name server.

#![no_main]

use canopus_agent::dns::Transport;
use canopus_agent::dns::index::{Addresses, Found};
use canopus_agent::dns::message::{Family, Query};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|packet: &[u8]| {
    let Ok(query) = Query::parse(packet) else { return };
    let addresses = Addresses { v4: (0..100u32).map(Into::into).collect(), v6: Box::default() };
    let found = Found { alias_of: Some("a.b."), addresses: &addresses };
    for (family, transport) in [(Family::V4, Transport::Udp), (Family::V6, Transport::Tcp)] {
        let answer = query.answer(family, &found, transport);
        assert!(answer.len() >= 12);
    }
    let _ = query.fit(packet.to_vec(), Transport::Udp);
    assert!(!query.failure().is_empty());
});
