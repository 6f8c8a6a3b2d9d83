//! What a call does before it is ours: inert or nested calls, and calls that meet nothing of ours, go straight to the
//! vendor with the arguments as they came.

use super::{arguments, c_parameters, forms};
use crate::policy::{Class, Gate, Served};
use crate::standard::{Direction, Parameter, Procedure};
use crate::{Entry, Table, rust};

/// A generic function for each exported procedure and form.
pub fn rust(table: &Table) -> String {
    table
        .exported()
        .flat_map(|entry| forms(entry).iter().map(move |large| function(entry, *large)))
        .collect()
}

fn function(entry: &Entry, large: bool) -> String {
    let procedure = &entry.procedure;
    let suffix = if large { "_c" } else { "" };
    let name = format!("{}{suffix}", procedure.snake());
    let pass = format!("return unsafe {{ rt.vendor.{name}({}) }}", arguments(procedure, large));
    let title = format!("/// `{}{suffix}`.\n", procedure.name);
    let signature =
        |name: &str| format!("fn {name}<A: Abi>({}) -> c_int", c_parameters(procedure, large));
    let (body, quick) = match &entry.class {
        Class::Served(row) => (served(entry, row, large, &pass), quick(entry, row, &pass)),
        Class::Refused(remedy) => {
            (refused(entry, remedy, &format!("{}{suffix}", procedure.name), &pass), None)
        }
        Class::Vendor(_) => unreachable!("vendor procedures are not exported"),
    };
    let body = format!("    let rt = Runtime::<A>::get();\n{body}");
    let Some(quick) = quick else {
        return format!("{title}#[inline]\npub unsafe {} {{\n{body}}}\n\n", signature(&name));
    };
    // From link to link by jumps: nothing is saved on the stack before the vendor's procedure or the full one.
    let go = |to: &str| format!("    unsafe {{ {to}({}) }}\n", arguments(procedure, large));
    let link = |seen: &str, name: &str, body: &str| {
        format!("#[inline(never)]\n{seen}unsafe extern \"C\" {} {{\n{body}}}\n\n", signature(name))
    };
    let (beyond, full) = (format!("{name}_beyond"), format!("{name}_in_full"));
    let quick = quick + &go(&format!("{full}::<A>"));
    let (first, rest) = if is_direct(entry) && !large {
        (go(&format!("direct::{name}::<A>")), link("pub(crate) ", &beyond, &quick))
    } else {
        (quick, String::new())
    };
    format!("{title}#[inline(always)]\npub unsafe {} {{\n{first}}}\n\n", signature(&name))
        + &rest
        + &link("", &full, &body)
}

fn is_direct(entry: &Entry) -> bool {
    matches!(&entry.class, Class::Served(row) if row.direct)
}

/// A look that needs no guard, for procedures that the vendor serves without calls from inside.
fn quick(entry: &Entry, row: &Served, pass: &str) -> Option<String> {
    // One communicator decides: what is plain meets nothing else of ours.
    let comm = rust::name(communicator(&entry.procedure).filter(|_| row.plain)?);
    let waits = passed_while(row).map_or_else(String::new, |idle| format!("\n        && {idle}"));
    Some(format!(
        "    if let Some(rt) = Runtime::<A>::started()\n        && !may_span(rt, {comm}){waits}\n    {{\n        {pass};\n    }}\n"
    ))
}

fn served(entry: &Entry, row: &Served, large: bool, pass: &str) -> String {
    let enter = if entry.gate() == Gate::Always { "Guard::enter()" } else { "enter(rt)" };
    let mut out = format!("    let Some(guard) = {enter} else {{\n        {pass};\n    }};\n");
    if let Some(ours) = meets_ours(entry) {
        let waits = passed_while(row).map_or_else(String::new, |idle| format!(" && {idle}"));
        out +=
            &format!("    let ours = {ours};\n    if !ours{waits} {{\n        {pass};\n    }}\n");
    }
    let normalised: Vec<_> =
        entry.procedure.parameters(false).map(|p| normalise(&entry.procedure, p, large)).collect();
    let separator = if normalised.is_empty() { "" } else { ", " };
    out + &format!(
        "    guard.serve();\n    let result = unsafe {{ serve::{}(rt{separator}{}) }};\n    finish(rt, {}, result)\n",
        entry.procedure.snake(),
        normalised.join(", "),
        handler(&entry.procedure),
    )
}

/// What must hold, besides meeting nothing of ours, for a call to be passed on.
fn passed_while(row: &Served) -> Option<&'static str> {
    if row.several {
        Some("!rt.spans_clusters()")
    } else {
        row.progress.then_some("!rt.needs_progress()")
    }
}

fn refused(entry: &Entry, remedy: &str, name: &str, pass: &str) -> String {
    let mut out = format!("    let Some(_guard) = enter(rt) else {{\n        {pass};\n    }};\n");
    if let Some(ours) = meets_ours(entry) {
        out += &format!("    let ours = {ours};\n    if !ours {{\n        {pass};\n    }}\n");
    }
    out + &format!(
        "    static TOLD: AtomicBool = AtomicBool::new(false);\n    refuse(rt, {}, \"{name}\", {remedy:?}, &TOLD)\n",
        handler(&entry.procedure),
    )
}

/// The expression that says whether a call meets something of ours; none when every call does.
fn meets_ours(entry: &Entry) -> Option<String> {
    let served = matches!(entry.class, Class::Served(_));
    match entry.gate() {
        Gate::Active | Gate::Always => None,
        Gate::Request if served => Some("rt.live_requests() != 0".into()),
        Gate::Group if served => Some("rt.live_groups() != 0".into()),
        Gate::Message if served => Some("rt.live_messages() != 0".into()),
        Gate::Datatype => Some("rt.live_datatypes() != 0".into()),
        Gate::Rate => Some(owned(&entry.procedure, &["KEYVAL", "COMMUNICATOR"])),
        // A group of ours beside a communicator of one cluster is an error that the vendor cannot see.
        Gate::Comm if served => Some(owned(&entry.procedure, &["COMMUNICATOR", "GROUP"])),
        _ => Some(owned(&entry.procedure, &["COMMUNICATOR", "REQUEST", "MESSAGE", "GROUP"])),
    }
}

/// One look-up for each handle or key of these kinds that the call hands in.
fn owned(procedure: &Procedure, kinds: &[&str]) -> String {
    let handed_in =
        |p: &&Parameter| kinds.contains(&p.kind.as_str()) && p.direction != Direction::Out;
    procedure.parameters(false).filter(handed_in).map(look_up).collect::<Vec<_>>().join(" || ")
}

fn look_up(parameter: &Parameter) -> String {
    let question = match parameter.kind.as_str() {
        "COMMUNICATOR" => "spans",
        "REQUEST" => "owns_request",
        "MESSAGE" => "owns_message",
        "KEYVAL" => "names_rate",
        _ => "owns_group",
    };
    let name = rust::name(parameter);
    match (parameter.depth, &parameter.length) {
        (0, _) => format!("{question}(rt, {name})"),
        (_, Some(count)) => format!("unsafe {{ any(rt, {name}, {count}, {question}::<A>) }}"),
        (_, None) => format!("unsafe {{ any(rt, {name}, 1, {question}::<A>) }}"),
    }
}

/// The first communicator that the call hands in.
fn communicator(procedure: &Procedure) -> Option<&Parameter> {
    procedure.parameters.iter().find(|p| p.kind == "COMMUNICATOR" && p.direction != Direction::Out)
}

/// The communicator whose error handler hears of a failure.
fn handler(procedure: &Procedure) -> String {
    match communicator(procedure) {
        Some(p) if p.depth == 0 => format!("Some({})", rust::name(p)),
        Some(p) => format!("unsafe {{ {}.as_ref() }}.copied()", rust::name(p)),
        None => "None".into(),
    }
}

/// An argument of the small or large form as the serving function takes it.
fn normalise(procedure: &Procedure, parameter: &Parameter, large: bool) -> String {
    let name = rust::name(parameter);
    if !(procedure.large && parameter.is_poly()) {
        return name;
    }
    match (parameter.depth, parameter.direction) {
        (0, _) if parameter.base(large) == "MPI_Aint" => format!("{name} as Count"),
        (0, _) => format!("Count::from({name})"),
        (_, Direction::In) => format!("Counts::new({name}.cast(), {large})"),
        _ => format!("CountOut::new({name}.cast(), {large})"),
    }
}
