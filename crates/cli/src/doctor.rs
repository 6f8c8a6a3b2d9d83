//! `gridmpi doctor`.

use crate::by_hand::{Failure, Hand, bad, job_file, targets};
use crate::output::{complain, print};
use crate::{own_program, text};
use gridmpi_bootstrap::line::Pass;
use gridmpi_doctor::{
    BesideFact, BesideProblem, Facts, Finding, Node, PeerFact, PeerProblem, Severity, machine,
};
use gridmpi_probe::{Conductor, Here, How, Options};
use gridmpi_relay::{Useless, Wrong};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LONG: &str = "\
Say what is wrong with machines and with the paths between clusters, and what to do about it.

With a job file a small process is started on the first and the last host of every cluster, by the
cluster's own launcher. They look at their machines and at each other, in both directions: which
addresses lead there, over which interface, whether large packets pass, round trip, socket buffers,
clocks, NAT, relays. Alone, it looks at this machine only. By hand, one side listens and the other
names it.

A line for each finding, the worst first: how bad it is, where, what, what shows it, the remedy as a
command, and its name (docs/doctor.md has all of them).";

const AFTER: &str = "\
Examples:
  Everything that a job would use, before it is started:
      gridmpi doctor job.toml

  The same and how long idle connections stay open (five minutes), and what links carry:
      gridmpi doctor --long --bandwidth job.toml

  This machine only:
      gridmpi doctor

  By hand between two nodes; the listening side shows the token (or writes it into --token-file):
      site-b $ gridmpi doctor --listen :7001 --token-file token
      site-a $ GRIDMPI_TOKEN=$(cat token) gridmpi doctor b1.site-b.example:7001

  On a gateway: whether its relay and those that it dials know each other, and processes can use those that it tells them of:
      gridmpi doctor --relay /etc/gridmpi/relay.toml

  Look first, and start only if nothing is in the way:
      gridmpi run --doctor job.toml

Exit codes: 0 if nothing is wrong (there may be warnings); 1 if errors were found, or what was
found could not be written; 2 if it could not look.";

/// Say what is wrong with machines and with the paths between clusters, and the remedy
#[derive(clap::Args)]
#[command(long_about = LONG, after_long_help = AFTER)]
pub(crate) struct Args {
    /// Job file, or where the other side listens; without either: this machine
    #[arg(value_name = "JOB.toml | HOST:PORT")]
    targets: Vec<String>,

    #[command(flatten)]
    hand: Hand,

    /// On a relay's host: look at the relays that these settings dial, and whether each side knows the other's certificate; and at those
    /// that they name in `beside`
    #[arg(long, value_name = "RELAY.toml", conflicts_with_all = ["targets", "listen"])]
    relay: Option<PathBuf>,

    /// Every host of every cluster, and not only the first and the last
    #[arg(long, requires = "targets", conflicts_with_all = ["listen", "relay"])]
    all_nodes: bool,

    /// Also leave connections idle for 10 to 300 s, to see whether a NAT or firewall forgets them
    #[arg(long, requires = "targets", conflicts_with_all = ["listen", "relay"])]
    long: bool,

    /// Also measure what each link carries, as `gridmpi probe` does: other traffic on it will notice
    #[arg(long, requires = "targets", conflicts_with_all = ["listen", "relay"])]
    bandwidth: bool,

    /// Also say what was looked at and is well
    #[arg(long, short, conflicts_with = "listen")]
    verbose: bool,

    /// Print findings, and the facts behind them, as JSON
    #[arg(long, conflicts_with = "listen")]
    json: bool,
}

/// Exit codes.
const WRONG: i32 = 1;
const COULD_NOT_LOOK: i32 = 2;

pub(crate) fn run(args: &Args) -> i32 {
    if let Err(problem) = args.hand.token_is_for_both_ends(&args.targets) {
        complain(problem);
        return COULD_NOT_LOOK;
    }
    if let Some(settings) = &args.relay {
        return told(args, peers(settings));
    }
    let looked = match (&args.hand.listen, job_file(&args.targets)) {
        (Some(listen), _) => {
            return served(args.hand.serve(*listen, "doctor", "looked at; what was found is"));
        }
        (None, Some(path)) => job(args, path),
        (None, None) if args.targets.is_empty() => alone(),
        (None, None) => by_hand(args),
    };
    told(args, looked)
}

fn told(args: &Args, looked: Result<Facts, Failure>) -> i32 {
    match looked {
        Ok(facts) => show(args, &facts),
        Err((problems, _)) => {
            problems.iter().for_each(complain);
            COULD_NOT_LOOK
        }
    }
}

fn served(done: Result<(), Failure>) -> i32 {
    let Err((problems, _)) = done else { return 0 };
    problems.iter().for_each(complain);
    COULD_NOT_LOOK
}

/// Looks at the relays that a relay dials, and at those that it tells processes of.
fn peers(settings: &Path) -> Result<Facts, Failure> {
    let name = settings.display().to_string();
    let text = text::read(settings, "file of a relay's settings", "").map_err(bad)?;
    let directory = settings.parent().unwrap_or(Path::new("."));
    let settings = gridmpi_relay::parse(&name, &text, directory);
    let settings = settings.map_err(|error| bad(error.to_string()))?;
    let looks =
        gridmpi_relay::look(&settings.config).map_err(|error| bad(format!("{name}: {error}")))?;
    let beside = gridmpi_relay::look_beside(&settings.config);
    let beside = beside.map_err(|error| bad(format!("{name}: {error}")))?;
    if looks.is_empty() && beside.is_empty() {
        return Err(bad(format!(
            "{name} names no relay to dial with TLS, and none in `beside`: look where the others are that dial this one"
        )));
    }
    let node = Node { cluster: String::new(), host: gridmpi_probe::host() };
    let peers = looks.into_iter().map(|look| seen(&node, look)).collect();
    let beside = beside.into_iter().map(|relay| seen_beside(&node, relay)).collect();
    Ok(Facts { peers, beside, ..Facts::default() })
}

fn micros(trip: Duration) -> u32 {
    u32::try_from(trip.as_micros()).unwrap_or(u32::MAX)
}

fn seen_beside(node: &Node, relay: gridmpi_relay::Beside) -> BesideFact {
    let gridmpi_relay::Beside { at, trip, wrong } = relay;
    let problem = |wrong| match wrong {
        Useless::Connect(why) => BesideProblem::Connect(why),
        Useless::NoRelay(why) => BesideProblem::NoRelay(why),
        Useless::Release => BesideProblem::Release,
        Useless::Token(name) => BesideProblem::Token(name),
        Useless::Own => BesideProblem::Own,
        Useless::Loopback => BesideProblem::Loopback,
        Useless::NoToken => BesideProblem::NoToken,
    };
    let problems = wrong.into_iter().map(problem).collect();
    BesideFact { node: node.clone(), at, trip_us: trip.map(micros), problems }
}

fn seen(node: &Node, look: gridmpi_relay::Look) -> PeerFact {
    let gridmpi_relay::Look { peer, address, at, outcome } = look;
    let trip = outcome.as_ref().ok().copied().map(micros);
    let problem = outcome.err().map(|wrong| match wrong {
        Wrong::Name(why) => PeerProblem::Name(why),
        Wrong::Connect(why) => PeerProblem::Connect(why),
        Wrong::NoTls(why) => PeerProblem::NoTls(why),
        Wrong::OtherCertificate { theirs, expected } => PeerProblem::OtherCertificate {
            theirs: theirs.to_string(),
            expected: expected.to_string(),
        },
        Wrong::Unknown { ours } => PeerProblem::Unknown(ours.to_string()),
    });
    PeerFact { node: node.clone(), peer, address, at, trip_us: trip, problem }
}

fn how(args: &Args) -> How {
    How {
        all_nodes: args.all_nodes,
        long: args.long,
        bandwidth: args.bandwidth.then(Options::default),
    }
}

fn interface() -> Option<String> {
    std::env::var(gridmpi_bootstrap::env::INTERFACE).ok().filter(|name| !name.is_empty())
}

fn alone() -> Result<Facts, Failure> {
    let here = Here::listening(interface()).map_err(|error| bad(error.to_string()))?;
    let node = Node { cluster: String::new(), host: here.host };
    let machine = machine::look(node, here.interface, here.addresses);
    Ok(Facts { machines: vec![machine], ..Facts::default() })
}

fn job(args: &Args, path: &Path) -> Result<Facts, Failure> {
    let spec = crate::run::read(path).map_err(bad)?;
    for name in gridmpi_job::measurable(&spec).1 {
        complain(format!(
            "cluster `{name}` is started by hand: look at its links by `gridmpi doctor --listen` there and `gridmpi doctor \
             HOST:PORT` on nodes of the others"
        ));
    }
    gridmpi_job::examine(&spec, &own_program(), &how(args))
        .map_err(|problems| (problems, COULD_NOT_LOOK))
}

fn by_hand(args: &Args) -> Result<Facts, Failure> {
    let targets = targets(&args.targets)?;
    let secret = gridmpi_job::read_token(args.hand.token_file.as_deref()).map_err(bad)?;
    let here = Here::listening(interface()).map_err(|error| bad(error.to_string()))?;
    let mut watch = || Ok(());
    let conductor = Conductor::by_hand(&targets, &Pass::from(&secret), here, &mut watch);
    let mut conductor = conductor.map_err(|error| bad(error.to_string()))?;
    let facts = conductor.examine_by_hand(&how(args));
    conductor.leave();
    Ok(facts)
}

fn show(args: &Args, facts: &Facts) -> i32 {
    let findings = gridmpi_doctor::findings(facts);
    let text = match args.json {
        true => gridmpi_doctor::json(&findings, facts),
        false => gridmpi_doctor::text(&findings, args.verbose) + &summary(&findings),
    };
    let is_taken = print(&(text + "\n"));
    let errors = || findings.iter().filter(|finding| finding.severity == Severity::Error);
    match errors().count() {
        0 => i32::from(!is_taken),
        _ if errors().all(|finding| finding.code == "not-looked") => COULD_NOT_LOOK,
        _ => WRONG,
    }
}

fn summary(findings: &[Finding]) -> String {
    let count = |of: Severity| findings.iter().filter(|finding| finding.severity == of).count();
    let several =
        |count: usize, name: &str| format!("{count} {name}{}", if count == 1 { "" } else { "s" });
    format!(
        "{}, {}, {}; {} well",
        several(count(Severity::Error), "error"),
        several(count(Severity::Warning), "warning"),
        several(count(Severity::Note), "note"),
        several(count(Severity::Ok), "thing"),
    )
}
