//! The kernel's own tools (`ip`, `bridge`, `tc`, `nft`, `ss`), many commands a process.

use crate::error::{Doing as _, LabError};
use crate::sys::process;
use std::fs;
use std::io::{self, Write as _};
use std::process::{Command, Output, Stdio};

/// Runs commands through one `PROGRAM -batch -` in the calling thread's namespaces; stops at the
/// first that fails.
///
/// # Errors
/// When the program is missing or a command fails; names the command.
pub fn batch(program: &str, commands: &[String]) -> Result<(), LabError> {
    if commands.is_empty() {
        return Ok(());
    }
    let output = feed(program, &["-batch", "-"], &(commands.join("\n") + "\n"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(LabError::Tool { program: program.to_owned(), message: explain(&output.stderr, commands) })
}

/// Loads rules of the kernel's packet filter, all or none, in the calling thread's network namespace.
///
/// # Errors
/// When `nft` is missing or refuses a rule; names the first.
pub fn filter(rules: &str) -> Result<(), LabError> {
    let output = feed("nft", &["-f", "-"], rules)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().unwrap_or("no reason given");
    let message =
        format!("{first} (gateways need a kernel with nf_tables, NAT and `ct timeout` policies)");
    Err(LabError::Tool { program: "nft".to_owned(), message })
}

/// What a tool says, in the calling thread's network namespace.
///
/// # Errors
/// When it is missing or fails.
pub fn ask(program: &str, arguments: &[&str]) -> Result<String, LabError> {
    let output = feed(program, arguments, "")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let message = text(&output.stderr).lines().next().unwrap_or("no reason given").to_owned();
    Err(LabError::Tool { program: program.to_owned(), message })
}

/// Runs a program in the calling thread's namespaces with `input`.
fn feed(program: &str, arguments: &[&str], input: &str) -> Result<Output, LabError> {
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", with_system_directories());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match process::prepare(&mut command, true).spawn() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(LabError::no_tool(program));
        }
        spawned => spawned.doing(format!("cannot start {program}"))?,
    };
    // A program that stops early closes its input; what it says is reported.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
    child.wait_with_output().doing(format!("cannot wait for {program}"))
}

/// What a batch said, with the command in place of its line number.
fn explain(stderr: &[u8], commands: &[String]) -> String {
    let said = String::from_utf8_lossy(stderr);
    let failed = said.rsplit_once("Command failed -:").and_then(|(_, number)| {
        let number: usize = number.trim().parse().ok()?;
        commands.get(number.checked_sub(1)?)
    });
    let first = said.lines().next().unwrap_or("no reason given");
    failed.map_or_else(|| first.to_owned(), |command| format!("{first} (in `{command}`)"))
}

/// The search path with the places of system tools, which users' paths often lack.
fn with_system_directories() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin")
}

/// Sets a variable below `/proc/sys` (of the calling thread's network namespace where it has
/// one).
///
/// # Errors
/// When the variable does not exist or the value is refused.
pub fn set_variable(name: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/{name}"), value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_names_the_package() {
        let error = batch("no-such-tool", &["x".into()]).unwrap_err().to_string();
        assert!(error.contains("iproute2"), "{error}");
        assert!(LabError::no_tool("nft").to_string().contains("package nftables"));
    }

    #[test]
    fn rules_that_are_refused_name_what_the_kernel_needs() {
        // Refused while it is read: nothing reaches the kernel.
        let error = filter("table ip lab { nonsense }\n").unwrap_err().to_string();
        assert!(error.contains("nf_tables"), "{error}");
    }

    #[test]
    fn a_failed_command_is_quoted() {
        let commands = ["link show".to_owned(), "link set nodev up".to_owned()];
        let said = b"Cannot find device \"nodev\"\nCommand failed -:2\n";
        let message = explain(said, &commands);
        assert_eq!(message, "Cannot find device \"nodev\" (in `link set nodev up`)");
        assert_eq!(explain(b"", &commands), "no reason given");
    }
}
