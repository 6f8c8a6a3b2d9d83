//! Members of the job: how they are taken in and come back, and what they say.

use super::{Event, MEMBER, Origin, Participant, Parting, Shared, Slot};
use crate::channel::{ChannelError, Reader, TABLE, WORD, Writer};
use crate::connect::tune_briskly;
use crate::handshake::Role;
use crate::join::{JoinRequest, JoinTerms};
use crate::lock;
use crate::message::{FromCoordinator, ToCoordinator, bounded};
use crate::model::{ClusterName, JobTable, Registration};
use crate::session::{Envelope, Hearer, Line, Opening, Session, SessionId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Who has come for a cluster.
pub(super) struct Member {
    id: SessionId,
    pub(super) session: Session<FromCoordinator>,
}

/// Why a connection of one who holds the key comes to nothing.
enum Unwelcome {
    Refused(Writer, String),
    /// It sent nothing, or what is none of ours.
    Mute(ChannelError),
    /// The connection broke off; whoever it was comes again.
    Broken,
}

impl From<ChannelError> for Unwelcome {
    fn from(error: ChannelError) -> Self {
        match error {
            error if error.is_passing() && !error.is_timeout() => Self::Broken,
            error => Self::Mute(error),
        }
    }
}

/// What a member is in its cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Rank,
    Launcher,
}

impl Shared {
    pub(super) fn welcome(&self, role: Role, reader: Reader, writer: Writer, origin: Origin) {
        let outcome = match role {
            Role::Messenger => self.take_word(reader, writer),
            Role::Rank => self.take_member(Part::Rank, reader, writer, origin),
            Role::Join => self.take_member(Part::Launcher, reader, writer, origin),
            Role::Probe => Err(out_of_turn(writer)),
        };
        let reason = match outcome {
            Ok(()) | Err(Unwelcome::Broken) => return,
            Err(Unwelcome::Refused(mut writer, reason)) => {
                let refused = FromCoordinator::Refused { reason: bounded(&reason) };
                let envelope = Envelope::saying(0, 0, refused);
                let _ = writer.send(&envelope, Instant::now() + MEMBER);
                reason
            }
            Err(Unwelcome::Mute(error)) => {
                format!("proved membership but sent no valid message: {error}")
            }
        };
        // The user knows that the job has ended.
        if self.ended.get().is_none() {
            self.tell(Event::Refused { peer: origin.peer, reason });
        }
    }

    /// A single message. Who does not get our answer says it again.
    fn take_word(&self, mut reader: Reader, mut writer: Writer) -> Result<(), Unwelcome> {
        match first_message(WORD, &mut reader)? {
            ToCoordinator::Abort { cluster, code, reason } => {
                self.aborted(&cluster, code, &reason);
            }
            ToCoordinator::Suspect { cluster, reason } => self.suspected(&cluster, &reason),
            _ => return Err(out_of_turn(writer)),
        }
        let _ = writer.send(&Envelope::count(1), Instant::now() + MEMBER);
        Ok(())
    }

    /// A connection of a session, the first one or another.
    fn take_member(
        &self,
        part: Part,
        mut reader: Reader,
        mut writer: Writer,
        origin: Origin,
    ) -> Result<(), Unwelcome> {
        tune_briskly(reader.stream()).map_err(ChannelError::from)?;
        let opening: Opening = reader.receive(Instant::now() + MEMBER)?;
        let found = lock(&self.roster).find(&opening.cluster);
        let cluster = match found {
            Ok(cluster) => cluster,
            Err(refusal) => return Err(Unwelcome::Refused(writer, refusal.reason)),
        };
        let known = self.slot(part, cluster);
        let known = lock(known).clone().filter(|member| member.id == opening.session);
        let heard = opening.received;
        let fits = known.as_ref().map_or(heard == 0, |member| member.session.is_plausible(heard));
        if !fits {
            let reason = format!("resumes a session of cluster `{}` that is none", opening.cluster);
            return Err(Unwelcome::Refused(writer, reason));
        }
        let told = known.as_ref().map_or(0, |member| member.session.heard());
        writer.send(&Envelope::count(told), Instant::now() + MEMBER)?;
        // Unwatched: we could not look for another way, and who is only stopped, as by a debugger, should not be lost.
        let mut line = Line::new((reader, writer), told, heard, None);
        let member = match known {
            Some(member) => member,
            None => {
                let most = if part == Part::Rank { TABLE } else { WORD };
                let first = first_message(most, &mut line.reader)?;
                match self.take_in(part, cluster, &opening, first, origin) {
                    Ok(member) => member,
                    Err(reason) => return Err(Unwelcome::Refused(line.writer, reason)),
                }
            }
        };
        self.attend(&member, line, part, cluster, origin);
        Ok(())
    }

    /// A new member, by its first message. An error is the reason for refusing it.
    fn take_in(
        &self,
        part: Part,
        cluster: usize,
        opening: &Opening,
        first: ToCoordinator,
        origin: Origin,
    ) -> Result<Arc<Member>, String> {
        let mut slot = lock(self.slot(part, cluster));
        if let Some(member) = slot.as_ref().filter(|member| member.id == opening.session) {
            // By another connection, given up meanwhile.
            return Ok(Arc::clone(member));
        }
        if let Some(reason) = self.ended.get() {
            return Err(format!("the job has ended: {reason}"));
        }
        let who = Participant { cluster, peer: origin.peer };
        let member = Arc::new(Member { id: opening.session, session: Session::new(1) });
        let event = match (part, first) {
            (Part::Rank, ToCoordinator::Register(new)) if new.cluster == opening.cluster => {
                self.register(new)?;
                Event::Registered(who)
            }
            (Part::Launcher, ToCoordinator::Join(new)) if new.cluster == opening.cluster => {
                let terms = self.join(cluster, new.clone())?;
                member.session.say(Arc::new(FromCoordinator::Joined(terms)));
                Event::Joined(who, new)
            }
            _ => return Err(OUT_OF_TURN.to_owned()),
        };
        *slot = Some(Arc::clone(&member));
        self.tell(event);
        drop(slot);
        if part == Part::Rank {
            self.announce_if_complete();
        }
        Ok(member)
    }

    fn register(&self, new: Registration) -> Result<(), String> {
        let outcome = lock(&self.roster).register(new);
        outcome.map(drop).map_err(|refusal| {
            if refusal.fatal {
                self.tell(Event::Failed(refusal.reason.clone()));
            }
            refusal.reason
        })
    }

    fn join(&self, cluster: usize, new: JoinRequest) -> Result<JoinTerms, String> {
        let mut roster = lock(&self.roster);
        roster.join(new).map_err(|refusal| refusal.reason)?;
        let interface = roster.expected(cluster).and_then(|expected| expected.interface.clone());
        Ok(JoinTerms { interface, ..self.terms.clone() })
    }

    fn announce_if_complete(&self) {
        let Some((members, table)) = self.complete() else { return };
        let message = Arc::new(FromCoordinator::Table(table.clone()));
        members.iter().for_each(|member| member.session.say(Arc::clone(&message)));
        self.tell(Event::Complete(table));
    }

    /// Everybody and the table, once; `None` while somebody is missing, and when the job has ended.
    fn complete(&self) -> Option<(Vec<Arc<Member>>, JobTable)> {
        if self.ended.get().is_some() {
            return None;
        }
        let members = self.ranks.iter().map(|slot| lock(slot).clone()).collect::<Option<_>>()?;
        let mut roster = lock(&self.roster);
        let table = roster.table(self.job, &self.network)?;
        roster.announce().then_some((members, table))
    }

    fn attend(&self, member: &Member, mut line: Line, part: Part, cluster: usize, origin: Origin) {
        if self.closing.load(Ordering::Acquire) {
            member.session.close();
        }
        let who = Participant { cluster, peer: origin.peer };
        let mut attendant = Attendant { shared: self, who, part, is_relayed: origin.is_relayed };
        member.session.serve(&mut line, &mut attendant);
    }

    fn aborted(&self, cluster: &ClusterName, code: i32, reason: &str) {
        let found = lock(&self.roster).find(cluster);
        if let Ok(cluster) = found {
            self.tell(Event::Aborted { cluster, code, reason: bounded(reason) });
        }
    }

    fn suspected(&self, cluster: &ClusterName, reason: &str) {
        let found = lock(&self.roster).find(cluster);
        if let Ok(cluster) = found {
            self.tell(Event::Suspected { cluster, reason: bounded(reason) });
        }
    }

    fn slot(&self, part: Part, cluster: usize) -> &Slot {
        match part {
            Part::Rank => &self.ranks[cluster],
            Part::Launcher => &self.joins[cluster],
        }
    }
}

/// Hears a member.
struct Attendant<'a> {
    shared: &'a Shared,
    who: Participant,
    part: Part,
    is_relayed: bool,
}

impl Hearer<ToCoordinator> for Attendant<'_> {
    fn up(&mut self, first: bool) {
        if !first {
            self.shared.tell(match self.part {
                Part::Rank => Event::Back(self.who.clone()),
                Part::Launcher => Event::JoinBack(self.who.clone()),
            });
        }
    }

    fn hear(&mut self, message: ToCoordinator) {
        let who = || self.who.clone();
        match (self.part, message) {
            (Part::Rank, ToCoordinator::Abort { cluster, code, reason }) => {
                self.shared.aborted(&cluster, code, &reason);
            }
            (Part::Rank, ToCoordinator::Suspect { cluster, reason }) => {
                self.shared.suspected(&cluster, &reason);
            }
            (Part::Rank, ToCoordinator::Finalized) => self.shared.tell(Event::Finalized(who())),
            (Part::Launcher, ToCoordinator::Exited { code }) => {
                self.shared.tell(Event::JoinExited(who(), code));
            }
            // Means nothing here.
            _ => {}
        }
    }

    fn down(&mut self, problem: &ChannelError) {
        // A relay that dies closes its connections, too.
        let is_closed = problem.is_closed() && !self.is_relayed;
        let parting = if is_closed { Parting::Closed } else { Parting::Broken };
        self.shared.tell(match self.part {
            Part::Rank => Event::Away(self.who.clone(), parting),
            Part::Launcher => Event::JoinAway(self.who.clone(), parting),
        });
    }
}

fn first_message(most: usize, reader: &mut Reader) -> Result<ToCoordinator, Unwelcome> {
    let envelope: Envelope<ToCoordinator> = reader.receive_within(most, Instant::now() + MEMBER)?;
    match envelope.message {
        Some((0, message)) if envelope.received == 0 => Ok(message),
        _ => Err(ChannelError::Unsaid.into()),
    }
}

const OUT_OF_TURN: &str = "sent a message out of turn";

fn out_of_turn(writer: Writer) -> Unwelcome {
    Unwelcome::Refused(writer, OUT_OF_TURN.to_owned())
}
