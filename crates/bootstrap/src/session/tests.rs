//! A watched end, and what is at the other.

use super::*;
use crate::channel::Channel;
use crate::secret::JobKey;
use std::net::TcpListener;

/// A far end that answers has time enough, on a busy machine as well.
const SIGNS: Patience =
    Patience { answer: Duration::from_secs(1), rest: Duration::from_millis(50) };

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

struct Deaf;

impl Hearer<String> for Deaf {
    fn up(&mut self, _: bool) {}
    fn hear(&mut self, _: String) {}
    fn down(&mut self, _: &ChannelError) {}
}

/// A watched line, and the far end of it.
fn line() -> (Line, Reader, Writer) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    let key = |byte| JobKey::from_bytes([byte; 32]);
    let near = Channel::new(near, key(1), key(2)).split().unwrap();
    let (reader, writer) = Channel::new(far, key(2), key(1)).split().unwrap();
    (Line::new(near, 0, 0, Some(SIGNS)), reader, writer)
}

/// What the far end has read until the line was closed: messages, questions.
fn read_all(mut reader: Reader) -> (usize, usize) {
    let (mut messages, mut questions) = (0, 0);
    while let Ok(envelope) = reader.receive::<Envelope<String>>(soon()) {
        messages += usize::from(envelope.message.is_some());
        questions += usize::from(envelope.asks);
    }
    (messages, questions)
}

#[test]
fn who_reads_and_says_nothing_is_noticed() {
    for is_said in [true, false] {
        let mut began = Instant::now();
        let (mut line, reader, _writer) = line();
        let far = std::thread::spawn(move || read_all(reader));
        let session = Session::new(0);
        if is_said {
            session.say(Arc::new("word".to_owned()));
        }
        // Served on, it asks again, and says nothing twice.
        for least in [if is_said { Duration::ZERO } else { SIGNS.rest }, Duration::ZERO] {
            assert!(matches!(session.serve(&mut line, &mut Deaf), End::Silent));
            assert!(began.elapsed() >= SIGNS.answer + least, "{:?}", began.elapsed());
            began = Instant::now();
        }
        assert_eq!(session.backlog(), usize::from(is_said));
        drop((line, session));
        let questions = if is_said { 1 } else { 2 };
        assert_eq!(far.join().unwrap(), (usize::from(is_said), questions));
    }
}

#[test]
fn a_question_is_answered_and_an_answer_is_not() {
    let (mut line, mut reader, mut writer) = line();
    let session = Arc::new(Session::<String>::new(0));
    let serving = Arc::clone(&session);
    let near = std::thread::spawn(move || serving.serve(&mut line, &mut Deaf));
    let mut next = || reader.receive::<Envelope<String>>(soon()).unwrap();
    for _ in 0..5 {
        // Were answers answered, one of those would come first.
        assert!(next().asks);
        writer.send(&Envelope::question(0), soon()).unwrap();
        assert!(!next().asks);
        writer.send(&Envelope::count(0), soon()).unwrap();
    }
    session.close();
    assert!(matches!(near.join().unwrap(), End::Closed));
}

#[test]
fn two_ends_that_watch_each_other_stay_together() {
    let (mut near, reader, writer) = line();
    let mut far = Line::new((reader, writer), 0, 0, Some(SIGNS));
    let sessions = [Session::<String>::new(0), Session::new(0)];
    std::thread::scope(|scope| {
        let ends = [
            scope.spawn(|| sessions[0].serve(&mut near, &mut Deaf)),
            scope.spawn(|| sessions[1].serve(&mut far, &mut Deaf)),
        ];
        sessions[0].rest(SIGNS.answer + 4 * SIGNS.rest);
        sessions[0].say(Arc::new("word".to_owned()));
        assert!(sessions[0].wait_heard(soon()));
        assert!(ends.iter().all(|end| !end.is_finished()));
        sessions.iter().for_each(Session::close);
    });
}
