//! Round trips, and that no bytes whatever make a decoder panic.

use gridmpi_wire::*;
use proptest::prelude::*;

fn envelope() -> impl Strategy<Value = Envelope> {
    (any::<u64>(), any::<u32>(), any::<i32>(), 1u64.., any::<u64>(), any::<u64>(), any::<bool>())
        .prop_map(|(context, source, tag, message, a, b, synchronous)| Envelope {
            context: ContextId(context),
            source: Rank(source),
            tag,
            message,
            len: a.max(b),
            eager: a.min(b),
            synchronous,
        })
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        envelope().prop_map(Frame::Envelope),
        (1u64.., 0..u64::MAX / 2).prop_map(|(message, offset)| Frame::Data { message, offset }),
        (1u64..).prop_map(|message| Frame::ClearToSend { message }),
        (1u64..).prop_map(|message| Frame::Matched { message }),
        (any::<u64>(), any::<u64>())
            .prop_map(|(envelopes, bytes)| Frame::Credit { envelopes, bytes }),
        Just(Frame::Close),
        Just(Frame::Ack),
        Just(Frame::Ping),
        Just(Frame::Pong),
        (any::<u32>(), any::<u32>(), any::<bool>())
            .prop_map(|(from, to, is_active)| Frame::Transfer(Transfer { from, to, is_active })),
        any::<(u32, u64, u64, bool, bool)>().prop_map(
            |(cluster, rate, node, is_settled, is_quiet)| {
                Frame::Grant(Grant { cluster, rate, node, is_settled, is_quiet })
            }
        ),
        (any::<u32>(), any::<u32>()).prop_map(|(to, share)| Frame::Share(Share { to, share })),
        any::<(u32, u64, u64, u64)>().prop_map(|(cluster, rate, short, link)| {
            Frame::Start(Start { cluster, rate, short, link })
        }),
        (any::<u32>(), any::<u64>())
            .prop_map(|(cluster, rate)| Frame::Demand(Demand { cluster, rate })),
        (any::<u32>(), any::<u64>())
            .prop_map(|(cluster, rate)| Frame::Carries(Carries { cluster, rate })),
        (any::<u32>(), any::<u64>())
            .prop_map(|(cluster, rate)| Frame::Room(Room { cluster, rate })),
        any::<(u32, u32, u32, bool)>().prop_map(|(from, to, process, is_active)| {
            Frame::Part(Part { from, to, process, is_active })
        }),
        any::<(u32, u32, u64)>().prop_map(|(process, cluster, rate)| {
            Frame::Limit(Limit { process, cluster, rate })
        }),
        any::<(u32, u64, u64, u32)>().prop_map(|(cluster, arrived, resent, queued)| {
            Frame::Seen(Seen { cluster, arrived, resent, queued })
        }),
    ]
}

/// A payload length that the frame allows.
fn payload_len(frame: &Frame, wish: u32) -> u32 {
    match frame {
        Frame::Envelope(envelope) => u64::from(wish).min(envelope.eager) as u32,
        Frame::Data { .. } => wish.max(1),
        _ => 0,
    }
}

proptest! {
    #[test]
    fn frames_come_back_as_they_went(
        frame in frame(), before: u16, seq in 1u64.., ack: u64, wish in 0..=MAX_PAYLOAD,
    ) {
        let seq = if frame.kind().is_sequenced() { seq } else { 0 };
        let payload_len = payload_len(&frame, wish);
        let before = if frame.kind().is_ordered() { before } else { 0 };
        let head = frame.encode_behind(before, seq, ack, payload_len);
        for cut in 0..head.len() {
            prop_assert_eq!(parse(&head[..cut]), Ok(None));
        }
        let parsed = parse(&head).unwrap().unwrap();
        prop_assert_eq!(parsed.frame, frame);
        prop_assert_eq!(parsed.header.kind, frame.kind());
        prop_assert_eq!((parsed.header.seq, parsed.header.ack), (seq, ack));
        prop_assert_eq!(parsed.header.data_before, before);
        prop_assert_eq!(parsed.header.payload_len(), payload_len);
        prop_assert_eq!(parsed.header.head_len(), head.len());
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, kind in 0u8..12, body in 0u32..100) {
        let _ = parse(&bytes);
        // The same with a header that gets further.
        if bytes.len() >= HEADER_LEN {
            bytes[0] = kind;
            bytes[1..4].fill(0);
            bytes[4..8].copy_from_slice(&body.to_le_bytes());
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn one_changed_bit_changes_the_frame_or_is_refused(
        frame in frame(), bit in 0usize..8 * HEADER_LEN, wish in 1..=MAX_PAYLOAD,
    ) {
        let seq = u64::from(frame.kind().is_sequenced());
        let mut bytes = frame.encode(seq, 7, payload_len(&frame, wish)).to_vec();
        let before = parse(&bytes);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert_ne!(parse(&bytes), before);
    }

    #[test]
    fn handshakes_come_back_as_they_went(
        from: u32, to: u32, job: [u8; 16], nonce: [u8; 32], resume in 1u64.., mac: [u8; 32],
    ) {
        let standing = from as u16;
        let (from, to) = (ProcId(from), ProcId(to));
        let (version_min, version_max) = (VERSION_MIN, VERSION_MAX);
        let hello = Hello { magic: MAGIC, version_min, version_max, from, to, job, nonce };
        prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        let verdict = Verdict::Accepted;
        let challenge = Challenge { magic: MAGIC, version: 1, verdict, nonce, mac };
        prop_assert_eq!(Challenge::decode(&challenge.encode()), Ok(challenge));
        let strand = Strand::new(mac[0] as usize % Strand::MAX).unwrap();
        let proof = Proof { resume, strand, standing, mac };
        prop_assert_eq!(Proof::decode(&proof.encode()), Ok(proof));
        let mut bytes = proof.encode();
        bytes[8] = (Strand::MAX as u8).saturating_add(mac[1]);
        prop_assert_eq!(Proof::decode(&bytes), Err(WireError::Field("strand")));
        let welcome = Welcome { verdict: Verdict::Duplicate, resume, mac };
        prop_assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
    }

    #[test]
    fn arbitrary_handshakes_never_panic(bytes: [u8; 160]) {
        let _ = Hello::decode(bytes.first_chunk().unwrap());
        let _ = Challenge::decode(bytes.first_chunk().unwrap());
        let _ = Proof::decode(bytes.first_chunk().unwrap());
        let _ = Welcome::decode(bytes.first_chunk().unwrap());
    }

    #[test]
    fn a_tag_holds_for_its_key_role_and_parts_only(
        key: [u8; 32], other: [u8; 32], part: Vec<u8>, bit in 0usize..256,
    ) {
        let (right, wrong) = (JobKey::new(key), JobKey::new(other));
        let mut mac = right.sign(Role::Proof, &[&part]);
        prop_assert!(right.verify(Role::Proof, &[&part], &mac));
        prop_assert!(!right.verify(Role::Welcome, &[&part], &mac));
        prop_assert!(!right.verify(Role::Proof, &[&part, &[]], &mac));
        prop_assert!(key == other || !wrong.verify(Role::Proof, &[&part], &mac));
        mac[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!right.verify(Role::Proof, &[&part], &mac));
    }
}

#[test]
fn versions_are_negotiated_to_the_highest_in_common() {
    let hello = |version_min, version_max| Hello {
        magic: MAGIC,
        version_min,
        version_max,
        from: ProcId(0),
        to: ProcId(1),
        job: [0; 16],
        nonce: [0; 32],
    };
    assert_eq!(choose_version(&hello(1, 1)), Some(1));
    assert_eq!(choose_version(&hello(1, 9)), Some(VERSION_MAX));
    assert_eq!(choose_version(&hello(VERSION_MAX + 1, 9)), None);
    assert_eq!(Hello::decode(&hello(2, 1).encode()), Err(WireError::Field("version_min")));
}

#[test]
fn each_message_has_verdicts_of_its_own() {
    for (verdict, of_challenge, of_welcome) in [
        (Verdict::Accepted, true, true),
        (Verdict::NoCommonVersion, true, false),
        (Verdict::Duplicate, false, true),
        (Verdict::Gone, false, true),
        (Verdict::CannotResume, false, true),
    ] {
        let refused = WireError::Field("verdict");
        let (nonce, mac) = ([0; 32], [0; 32]);
        let challenge = Challenge { magic: MAGIC, version: 1, verdict, nonce, mac };
        let wanted = if of_challenge { Ok(challenge) } else { Err(refused) };
        assert_eq!(Challenge::decode(&challenge.encode()), wanted);
        let welcome = Welcome { verdict, resume: 1, mac };
        let wanted = if of_welcome { Ok(welcome) } else { Err(refused) };
        assert_eq!(Welcome::decode(&welcome.encode()), wanted);
    }
}

#[test]
fn what_the_specification_excludes_is_refused_by_name() {
    let encoded = |frame: Frame, seq| frame.encode(seq, 0, 0).to_vec();
    let mut bytes = encoded(Frame::Close, 1);
    bytes[0] = 77;
    assert_eq!(parse(&bytes), Err(WireError::UnknownKind(77)));
    let mut bytes = encoded(Frame::Close, 1);
    bytes[1] = 1;
    assert_eq!(parse(&bytes), Err(WireError::ReservedBits(6)));
    for unordered in
        [Frame::Ack.encode(0, 0, 0), Frame::Data { message: 1, offset: 0 }.encode(1, 0, 1)]
    {
        let mut bytes = unordered.to_vec();
        bytes[3] = 1;
        assert_eq!(parse(&bytes), Err(WireError::ReservedBits(bytes[0])));
    }
    let mut bytes = encoded(Frame::Close, 1);
    bytes[4] = 1;
    assert_eq!(parse(&bytes), Err(WireError::BodyLength { kind: 6, len: 1 }));
    let mut bytes = encoded(Frame::Close, 1);
    bytes[8] = 0;
    assert_eq!(parse(&bytes), Err(WireError::Sequence { kind: 6, seq: 0 }));
    let bytes = encoded(Frame::Data { message: 1, offset: 0 }, 1);
    assert_eq!(parse(&bytes), Err(WireError::Field("payload")));
    let bytes = encoded(Frame::Matched { message: 0 }, 1);
    assert_eq!(parse(&bytes), Err(WireError::Field("message")));
    let last = u64::MAX;
    let bytes = Frame::Data { message: 1, offset: last }.encode(1, 0, 1).to_vec();
    assert_eq!(parse(&bytes), Err(WireError::Field("offset")));
}

/// `docs/wire.md` is written from these.
#[test]
fn lengths_are_those_of_the_specification() {
    let text = include_str!("../../../docs/wire.md");
    let lens = [
        ("Hello", Hello::LEN),
        ("Challenge", Challenge::LEN),
        ("Proof", Proof::LEN),
        ("Welcome", Welcome::LEN),
    ];
    for (name, len) in lens {
        assert!(text.contains(&format!("| {name} ({len} bytes) |")), "{name}: {len}");
    }
    assert!(text.contains(&format!("| header ({HEADER_LEN} bytes) |")));
    for &kind in Kind::ALL {
        let numbered = if kind.is_sequenced() { "yes" } else { "no" };
        let row = format!("| {} | {kind:?} | {numbered} |", kind as u8);
        let row = text.lines().find(|line| line.starts_with(&row)).expect(&row);
        let fields = row.split('|').nth(4).unwrap();
        // The second word of each of the fields that commas separate is its length.
        let len_of = |field: &str| field.split_whitespace().nth(1)?.parse::<usize>().ok();
        let len: usize = fields.split(',').filter_map(len_of).sum();
        assert_eq!(len, kind.fields_len(), "{kind:?}");
        assert_eq!(row.contains("262,144"), kind.has_payload(), "{kind:?}");
    }
    let magic: Vec<String> = MAGIC.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(text.contains(&magic.join(" ")));
}

/// A direction's records, each of these payloads in pieces of `piece` bytes.
fn records(payloads: &[Vec<u8>], piece: usize) -> Vec<u8> {
    let mut seal = Seal::default();
    let mut bytes = Vec::new();
    for payload in payloads {
        bytes.extend_from_slice(&seal.head(payload.chunks(piece)));
        bytes.extend_from_slice(payload);
    }
    bytes
}

/// What is good of what comes in pieces of `piece` bytes: payloads of whole records, and how it ended.
fn verified(mut bytes: &[u8], piece: usize) -> (Vec<Vec<u8>>, Result<(), RecordError>) {
    let mut verify = Verify::default();
    let (mut good, mut present) = (Vec::new(), Vec::new());
    loop {
        if verify.rest() == 0 {
            let Some((head, behind)) = bytes.split_first_chunk::<RECORD_HEAD>() else {
                return (good, Ok(()));
            };
            bytes = behind;
            match verify.head(head) {
                Ok(len) => assert!((1..=MAX_RECORD).contains(&len) && len == verify.rest()),
                Err(error) => return (good, Err(error)),
            }
        }
        let (taken, behind) = bytes.split_at(bytes.len().min(piece).min(verify.rest()));
        if taken.is_empty() {
            return (good, Ok(()));
        }
        bytes = behind;
        if let Err(error) = verify.payload(taken) {
            return (good, Err(error));
        }
        present.extend_from_slice(taken);
        if verify.rest() == 0 {
            good.push(std::mem::take(&mut present));
        }
    }
}

fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let sizes = prop_oneof![1usize..100, 60_000..=MAX_RECORD];
    let payload = (sizes, any::<u8>()).prop_map(|(len, seed)| {
        (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
    });
    prop::collection::vec(payload, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_come_back_as_they_went_however_they_are_cut(
        payloads in payloads(), piece in 1usize..70_000, cut in 1usize..70_000,
    ) {
        let bytes = records(&payloads, piece);
        prop_assert_eq!(verified(&bytes, cut), (payloads, Ok(())));
    }

    #[test]
    fn nothing_that_was_changed_is_good(
        payloads in payloads(), cut in 1usize..70_000, at: prop::sample::Index, bit in 0u8..8,
    ) {
        let mut bytes = records(&payloads, MAX_RECORD);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let (good, end) = verified(&bytes, cut);
        prop_assert!(end.is_err());
        prop_assert!(payloads.starts_with(&good));
        prop_assert!(good.len() < payloads.len());
    }

    #[test]
    fn records_that_are_lost_doubled_or_exchanged_are_not_good(
        first in payloads(), second in payloads(), third in payloads(),
    ) {
        let all = [first.clone(), second.clone(), third.clone()].concat();
        let bytes = records(&all, MAX_RECORD);
        let ends = [&first[..], &all[..first.len() + second.len()]].map(|it| records(it, MAX_RECORD).len());
        let (a, b, c) = (&bytes[..ends[0]], &bytes[ends[0]..ends[1]], &bytes[ends[1]..]);
        for others in [[a, c].concat(), [a, b, b].concat(), [a, c, b].concat(), [b, a].concat()] {
            let (good, end) = verified(&others, MAX_RECORD);
            prop_assert!(end.is_err());
            prop_assert!(all.starts_with(&good));
        }
    }

    #[test]
    fn any_bytes_are_records_or_an_error(bytes: Vec<u8>, begins: bool, cut in 1usize..100) {
        let begin: &[u8] = if begins { &[RECORD_FIRST] } else { &[] };
        let (good, _) = verified(&[begin, &bytes[..]].concat(), cut);
        prop_assert!(good.iter().map(Vec::len).sum::<usize>() <= bytes.len());
    }
}

#[test]
fn a_record_is_what_the_specification_says() {
    let mut seal = Seal::default();
    let head = seal.head([&b"12345"[..], b"6789"].into_iter());
    assert_eq!(head[..4], [0xc5, 9, 0, 0]);
    // CRC-32C by bits, as anybody would write it down.
    let crc = |bytes: &[u8]| {
        !bytes.iter().fold(!0u32, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
            })
        })
    };
    assert_eq!(crc(b"123456789"), 0xe306_9283, "the check value of CRC-32C");
    assert_eq!(head[4..8], crc(&[0xc5, 9, 0, 0]).to_le_bytes());
    assert_eq!(head[8..], crc(b"\xc5\x09\x00\x00123456789").to_le_bytes());
    let next = seal.head([&b"x"[..]].into_iter());
    assert_eq!(next[8..], crc(b"\xc5\x09\x00\x00123456789\xc5\x01\x00\x00x").to_le_bytes());
}
