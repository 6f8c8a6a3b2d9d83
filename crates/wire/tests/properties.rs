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
        (any::<u32>(), any::<u64>(), any::<bool>()).prop_map(|(cluster, rate, is_settled)| {
            Frame::Grant(Grant { cluster, rate, is_settled })
        }),
        (any::<u32>(), any::<u32>()).prop_map(|(to, share)| Frame::Share(Share { to, share })),
        (any::<u32>(), any::<u64>(), any::<u64>())
            .prop_map(|(cluster, rate, link)| Frame::Start(Start { cluster, rate, link })),
        (any::<u32>(), any::<u64>())
            .prop_map(|(cluster, rate)| Frame::Demand(Demand { cluster, rate })),
        any::<(u32, u32, u32, bool)>().prop_map(|(from, to, process, is_active)| {
            Frame::Part(Part { from, to, process, is_active })
        }),
        any::<(u32, u32, u64)>().prop_map(|(process, cluster, rate)| {
            Frame::Limit(Limit { process, cluster, rate })
        }),
        (any::<u32>(), any::<u64>(), any::<u64>())
            .prop_map(|(cluster, arrived, resent)| Frame::Seen(Seen { cluster, arrived, resent })),
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
