//! DNS messages: queries read, answers written.

use std::sync::atomic::{AtomicU64, Ordering};

use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

use super::Transport;
use super::index::{Addresses, Found};

/// Seconds for which clients may keep an answer. Parity: low, so that a new address is soon noticed.
const TTL: u32 = 30;
const HEADER: usize = 12;
/// What a client takes in a datagram unless it says more.
const SMALLEST_LIMIT: usize = 512;
/// The largest message there is.
const LARGEST_LIMIT: usize = 65_535;
/// The datagram size that the agent announces, which no path breaks up.
const OWN_PAYLOAD: u16 = 1232;
/// Bytes of a record whose name is a reference, before its data.
const FIXED_RECORD: usize = 12;
/// EDNS without options (RFC 6891): the root's name, type 41, [`OWN_PAYLOAD`], no flags, no data.
const OPT: [u8; 11] =
    [0, 0, 41, OWN_PAYLOAD.to_be_bytes()[0], OWN_PAYLOAD.to_be_bytes()[1], 0, 0, 0, 0, 0, 0];

/// Why a packet is not looked up.
#[derive(Debug, PartialEq, Eq)]
pub enum QueryError {
    /// The packet is an answer, or too short for a query.
    NotAQuery,
    /// The query is answered with an error.
    Refused(Vec<u8>),
}

/// Which addresses are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A records.
    V4,
    /// AAAA records.
    V6,
}

/// A query with one question.
#[derive(Clone, Debug)]
pub struct Query {
    bytes: Vec<u8>,
    message: Message,
    name: String,
    /// Where the question ends.
    question_end: usize,
}

impl Query {
    /// Reads a packet.
    pub fn parse(packet: &[u8]) -> Result<Self, QueryError> {
        let (Some(header), true) = (packet.first_chunk::<HEADER>(), packet.len() <= LARGEST_LIMIT) else {
            return Err(QueryError::NotAQuery);
        };
        if header[2] & 0x80 != 0 {
            return Err(QueryError::NotAQuery);
        }
        let refuse = |code| Err(QueryError::Refused(refusal(header, code)));
        let op_code = OpCode::from_u8((header[2] >> 3) & 0x0f);
        if op_code != OpCode::Query {
            return refuse(ResponseCode::NotImp);
        }
        let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        // All clients send one question, no answers, and at most EDNS and a signature beside it.
        if count(4) != 1 || count(6) > 1 || count(8) > 1 || count(10) > 2 {
            return refuse(ResponseCode::FormErr);
        }
        let parsed = question_end(packet).zip(Message::from_vec(packet).ok());
        let Some((question_end, message)) = parsed.filter(|(_, message)| message.queries.len() == 1) else {
            return refuse(ResponseCode::FormErr);
        };
        let mut name = message.queries[0].name().to_ascii();
        name.make_ascii_lowercase();
        Ok(Self { bytes: packet.to_vec(), message, name, question_end })
    }

    /// The name that is asked for, lower case, with a dot at its end.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The family of addresses that are asked for; `None` if something else is.
    pub fn address_family(&self) -> Option<Family> {
        let question = self.message.queries.first()?;
        if question.query_class() != DNSClass::IN {
            return None;
        }
        match question.query_type() {
            RecordType::A => Some(Family::V4),
            RecordType::AAAA => Some(Family::V6),
            _ => None,
        }
    }

    /// The query as it came.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number that the client has given it.
    pub fn id(&self) -> [u8; 2] {
        self.message.metadata.id.to_be_bytes()
    }

    /// The question, as it came.
    pub fn question(&self) -> &[u8] {
        self.bytes.get(HEADER..self.question_end).unwrap_or_default()
    }

    /// The answer with the addresses that were found. A name without addresses of the family has an empty answer: an
    /// NXDOMAIN would make clients that ask for both families give up the other.
    pub fn answer(&self, family: Family, found: &Found<'_>, transport: Transport) -> Vec<u8> {
        let plain = || self.plain_answer(family, found.addresses, self.limit(transport));
        let plain = if found.alias_of.is_none() { plain() } else { None };
        plain.unwrap_or_else(|| self.general_answer(family, found, transport))
    }

    /// The answer with addresses of the name itself, if the client takes all of them: nearly every answer is one. Its parts
    /// have fixed sizes, so it is written in place; [`Self::general_answer`] has the same bytes for five times the work.
    fn plain_answer(&self, family: Family, addresses: &Addresses, limit: usize) -> Option<Vec<u8>> {
        let (count, kind, width) = match family {
            Family::V4 => (addresses.v4.len(), RecordType::A, 4),
            Family::V6 => (addresses.v6.len(), RecordType::AAAA, 16),
        };
        let edns = self.message.edns.is_some();
        let size = self.question_end + count * (FIXED_RECORD + width) + if edns { OPT.len() } else { 0 };
        let mut answer = Vec::with_capacity(size);
        if size > limit {
            return None;
        }
        let header = self.header();
        answer.extend_from_slice(&header[..2]);
        // It is a response and authoritative, and recursion is available. What was desired is repeated.
        answer.extend([0x84 | (header[2] & 0x01), 0x80 | (header[3] & 0x10), 0, 1]);
        answer.extend(u16::try_from(count).ok()?.to_be_bytes());
        answer.extend([0, 0, 0, u8::from(edns)]);
        answer.extend_from_slice(self.question());
        let start = random_below(count);
        for index in (start..count).chain(0..start) {
            // The name is where the question has it.
            answer.extend([0xc0, HEADER as u8]);
            answer.extend(u16::from(kind).to_be_bytes());
            answer.extend(u16::from(DNSClass::IN).to_be_bytes());
            answer.extend(TTL.to_be_bytes());
            answer.extend([0, width as u8]);
            match family {
                Family::V4 => answer.extend(addresses.v4.get(index)?.octets()),
                Family::V6 => answer.extend(addresses.v6.get(index)?.octets()),
            }
        }
        if edns {
            answer.extend(OPT);
        }
        Some(answer)
    }

    fn general_answer(&self, family: Family, found: &Found<'_>, transport: Transport) -> Vec<u8> {
        let mut response = self.response(ResponseCode::NoError);
        response.metadata.authoritative = true;
        let asked = self.message.queries[0].name().clone();
        let mut addresses = records(family, found.addresses);
        if !addresses.is_empty() {
            let owner = match found.alias_of.map(Name::from_ascii) {
                Some(Ok(target)) => {
                    response.add_answer(Record::from_rdata(asked, TTL, RData::CNAME(CNAME(target.clone()))));
                    target
                }
                _ => asked,
            };
            let start = random_below(addresses.len());
            addresses.rotate_left(start);
            response
                .add_answers(addresses.into_iter().map(|data| Record::from_rdata(owner.clone(), TTL, data)));
        }
        self.encode(response, transport)
    }

    /// The answer that nothing can be told.
    pub fn failure(&self) -> Vec<u8> {
        let response = self.response(ResponseCode::ServFail);
        response.to_vec().unwrap_or_else(|_| refusal(&self.header(), ResponseCode::ServFail))
    }

    /// An answer of somebody else, cut off if the client cannot take it.
    pub fn fit(&self, mut answer: Vec<u8>, transport: Transport) -> Vec<u8> {
        if answer.len() <= self.limit(transport) {
            return answer;
        }
        let Some(end) = question_end(&answer) else { return self.failure() };
        answer.truncate(end);
        answer[2] |= 0x02;
        answer[6..HEADER].fill(0);
        answer
    }

    /// The bytes that the client takes.
    fn limit(&self, transport: Transport) -> usize {
        match transport {
            Transport::Tcp => LARGEST_LIMIT,
            Transport::Udp => {
                let announced = self.message.edns.as_ref().map_or(0, Edns::max_payload);
                usize::from(announced).max(SMALLEST_LIMIT)
            }
        }
    }

    fn header(&self) -> [u8; HEADER] {
        self.bytes.first_chunk().copied().unwrap_or_default()
    }

    fn response(&self, code: ResponseCode) -> Message {
        let asked = &self.message.metadata;
        let mut response = Message::response(asked.id, asked.op_code);
        response.metadata = Metadata::response_from_request(asked);
        response.metadata.message_type = MessageType::Response;
        response.metadata.recursion_available = true;
        response.metadata.response_code = code;
        response.add_queries(self.message.queries.clone());
        if self.message.edns.is_some() {
            let mut edns = Edns::new();
            edns.set_max_payload(OWN_PAYLOAD);
            response.set_edns(edns);
        }
        response
    }

    /// The bytes of a response, with as many answers as the client takes.
    fn encode(&self, mut response: Message, transport: Transport) -> Vec<u8> {
        let limit = self.limit(transport);
        let fits = |response: &Message| response.to_vec().ok().filter(|bytes| bytes.len() <= limit);
        if let Some(bytes) = fits(&response) {
            return bytes;
        }
        response.metadata.truncation = true;
        let answers = std::mem::take(&mut response.answers);
        // Names are written once and referred to after that, so the size of an answer depends on those before it.
        let (mut fitting, mut beyond) = (0, answers.len());
        while fitting + 1 < beyond {
            let middle = usize::midpoint(fitting, beyond);
            response.answers.clear();
            response.answers.extend_from_slice(&answers[..middle]);
            if fits(&response).is_some() {
                fitting = middle;
            } else {
                beyond = middle;
            }
        }
        response.answers.clear();
        response.answers.extend_from_slice(&answers[..fitting]);
        fits(&response).unwrap_or_else(|| refusal(&self.header(), ResponseCode::ServFail))
    }
}

fn records(family: Family, addresses: &Addresses) -> Vec<RData> {
    match family {
        Family::V4 => addresses.v4.iter().map(|address| RData::A(A(*address))).collect(),
        Family::V6 => addresses.v6.iter().map(|address| RData::AAAA(AAAA(*address))).collect(),
    }
}

/// A header alone, for packets whose question cannot be repeated.
fn refusal(header: &[u8; HEADER], code: ResponseCode) -> Vec<u8> {
    let mut answer = vec![0; HEADER];
    answer[..2].copy_from_slice(&header[..2]);
    answer[2] = 0x80 | (header[2] & 0x79);
    answer[3] = 0x80 | code.low();
    answer
}

/// Where the first question of a message ends; `None` if it has none, or one that refers to other places in the message.
pub(super) fn question_end(message: &[u8]) -> Option<usize> {
    let mut at = HEADER;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        match length {
            0 => break,
            1..=63 => at += length,
            _ => return None,
        }
        if at > HEADER + 255 {
            return None;
        }
    }
    let end = at + 4;
    (end <= message.len()).then_some(end)
}

/// A number below `count`, so that clients spread over addresses. It need not be hard to guess.
fn random_below(count: usize) -> usize {
    static STATE: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    let mut state = STATE.load(Ordering::Relaxed);
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    STATE.store(state, Ordering::Relaxed);
    usize::try_from(state >> 32).unwrap_or_default() % count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::op;
    use proptest::prelude::*;

    fn packet(name: &str, kind: RecordType, payload: Option<u16>) -> Vec<u8> {
        let mut message = Message::new(7, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(op::Query::query(Name::from_ascii(name).unwrap(), kind));
        if let Some(payload) = payload {
            let mut edns = Edns::new();
            edns.set_max_payload(payload);
            message.set_edns(edns);
        }
        message.to_vec().unwrap()
    }

    fn addresses(count: u32) -> Addresses {
        Addresses { v4: (0..count).map(std::net::Ipv4Addr::from).collect(), v6: Box::default() }
    }

    #[test]
    fn answer_repeats_the_question_and_has_the_addresses() {
        let query = Query::parse(&packet("Cart.Shop.", RecordType::A, Some(4096))).unwrap();
        assert_eq!(query.name(), "cart.shop.");
        let addresses = addresses(3);
        let found = Found { alias_of: None, addresses: &addresses };
        let answer = Message::from_vec(&query.answer(Family::V4, &found, Transport::Udp)).unwrap();
        assert_eq!(answer.metadata.id, 7);
        assert!(answer.metadata.authoritative && answer.metadata.recursion_desired);
        assert_eq!(answer.queries[0].name().to_ascii(), "Cart.Shop.");
        assert_eq!(answer.answers.len(), 3);
        assert!(answer.answers.iter().all(|record| record.ttl == TTL));
        assert!(answer.edns.is_some());
        let empty = Message::from_vec(&query.answer(Family::V6, &found, Transport::Udp)).unwrap();
        assert_eq!((empty.metadata.response_code, empty.answers.len()), (ResponseCode::NoError, 0));
    }

    #[test]
    fn answer_that_is_written_in_place_is_the_general_one() {
        let addresses = Addresses { v4: [[10, 0, 0, 1].into()].into(), v6: [1_u128.into()].into() };
        let found = Found { alias_of: None, addresses: &addresses };
        for (kind, family) in [(RecordType::A, Family::V4), (RecordType::AAAA, Family::V6)] {
            for payload in [None, Some(4096)] {
                let mut bytes = packet("Cart.Shop.", kind, payload);
                for flags in [[0x00, 0x00], [0x01, 0x00], [0x01, 0x10], [0x00, 0x20]] {
                    bytes[2..4].copy_from_slice(&flags);
                    let query = Query::parse(&bytes).unwrap();
                    let plain = query.plain_answer(family, &addresses, SMALLEST_LIMIT).unwrap();
                    assert_eq!(plain, query.general_answer(family, &found, Transport::Udp), "{flags:?}");
                }
            }
        }
    }

    #[test]
    fn alias_comes_before_the_addresses_of_its_target() {
        let query = Query::parse(&packet("a.b.search.", RecordType::A, None)).unwrap();
        let addresses = addresses(1);
        let found = Found { alias_of: Some("a.b."), addresses: &addresses };
        let answer = Message::from_vec(&query.answer(Family::V4, &found, Transport::Udp)).unwrap();
        assert_eq!(answer.answers[0].record_type(), RecordType::CNAME);
        assert_eq!(answer.answers[1].name.to_ascii(), "a.b.");
    }

    #[test]
    fn answer_is_cut_off_at_the_size_the_client_takes() {
        let addresses = addresses(1000);
        let found = Found { alias_of: None, addresses: &addresses };
        for (payload, transport, limit) in [
            (None, Transport::Udp, 512),
            (Some(1400), Transport::Udp, 1400),
            (Some(100), Transport::Udp, 512),
        ] {
            let query = Query::parse(&packet("headless.shop.", RecordType::A, payload)).unwrap();
            let bytes = query.answer(Family::V4, &found, transport);
            assert!(bytes.len() <= limit && bytes.len() > limit - 64, "{}", bytes.len());
            assert!(Message::from_vec(&bytes).unwrap().metadata.truncation);
        }
        let query = Query::parse(&packet("headless.shop.", RecordType::A, None)).unwrap();
        let whole = Message::from_vec(&query.answer(Family::V4, &found, Transport::Tcp)).unwrap();
        assert_eq!((whole.answers.len(), whole.metadata.truncation), (1000, false));
    }

    #[test]
    fn hostile_packets_are_ignored_or_refused() {
        let good = packet("a.b.", RecordType::A, None);
        let changed = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            Query::parse(&bytes).map(|_| ()).map_err(|error| match error {
                QueryError::NotAQuery => "ignored".to_owned(),
                QueryError::Refused(answer) => format!("code {}", answer[3] & 0x0f),
            })
        };
        assert_eq!(Query::parse(&good[..11]).unwrap_err(), QueryError::NotAQuery);
        assert_eq!(changed(2, 0x80), Err("ignored".into()), "an answer");
        assert_eq!(changed(2, 0x28), Err("code 4".into()), "an update");
        assert_eq!(changed(5, 2), Err("code 1".into()), "two questions");
        assert_eq!(changed(5, 0), Err("code 1".into()), "no question");
        assert_eq!(changed(7, 9), Err("code 1".into()), "answers in a query");
        assert_eq!(changed(12, 0xc0), Err("code 1".into()), "a name that refers to itself");
        assert_eq!(changed(12, 60), Err("code 1".into()), "a label beyond the end");
    }

    #[test]
    fn long_answer_of_a_resolver_is_cut_off_to_its_question() {
        let query = Query::parse(&packet("a.b.", RecordType::A, None)).unwrap();
        let mut answer = query.bytes().to_vec();
        answer[2] |= 0x80;
        answer[7] = 9;
        answer.resize(900, 0);
        let cut = Message::from_vec(&query.fit(answer, Transport::Udp)).unwrap();
        assert!(cut.metadata.truncation && cut.answers.is_empty());
        assert_eq!(cut.queries.len(), 1);
    }

    proptest! {
        #[test]
        fn any_packet_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(query) = Query::parse(&bytes) {
                let addresses = addresses(40);
                let found = Found { alias_of: Some("x.y."), addresses: &addresses };
                let answer = query.answer(Family::V4, &found, Transport::Udp);
                prop_assert!(answer.len() >= HEADER);
                let _ = query.fit(bytes, Transport::Udp);
            }
        }
    }
}
