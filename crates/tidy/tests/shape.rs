//! What ARCHITECTURE.md says of the rooms, held by a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The rooms from the top: a room may use those below it and none above.
const LAYERS: &[&str] = &[
    "cli",
    "bench",
    "sim",
    "job",
    "relay",
    "settings",
    "probe",
    "doctor",
    "lab",
    "report",
    "interpose-mpich",
    "interpose-openmpi",
    "interpose",
    "net",
    "engine",
    "coll",
    "trunk",
    "rate",
    "bootstrap",
    "leg",
    "buffer",
    "sock",
    "wire",
    "abi",
    "apigen",
];

/// Where unsafe code is at home, and why.
const UNSAFE: &[(&str, &str)] = &[
    ("interpose", "every argument comes from C"),
    ("interpose-mpich", "exported symbols"),
    ("interpose-openmpi", "exported symbols"),
    ("buffer", "the program's memory"),
    ("lab", "namespaces and packet rings"),
    ("sim", "buffers in the way that the program's memory is given"),
];

/// Lines past which a file is more than one room.
const MAX_LINES: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rooms() -> Vec<String> {
    let mut rooms: Vec<String> = fs::read_dir(root().join("crates"))
        .expect("crates/ is there")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("ASCII names"))
        .filter(|name| name != "tidy")
        .collect();
    rooms.sort();
    rooms
}

fn uses(room: &str, section: &str) -> Vec<String> {
    let path = root().join("crates").join(room).join("Cargo.toml");
    let text = fs::read_to_string(&path).expect("a manifest");
    let manifest: toml::Table = text.parse().expect("a manifest is TOML");
    let Some(section) = manifest.get(section).and_then(toml::Value::as_table) else {
        return Vec::new();
    };
    section.keys().filter_map(|name| name.strip_prefix("gridmpi-").map(str::to_owned)).collect()
}

fn layer(room: &str) -> usize {
    let found = LAYERS.iter().position(|known| *known == room);
    found.unwrap_or_else(|| panic!("crates/{room} has no place in the layers of this test"))
}

fn tracked(ending: &str) -> Vec<PathBuf> {
    let listed = Command::new("git").args(["ls-files", ending]).current_dir(root()).output();
    let listed = listed.expect("git lists the files");
    assert!(listed.status.success(), "not a git checkout");
    let names = String::from_utf8(listed.stdout).expect("UTF-8 names");
    names.lines().map(|name| root().join(name)).filter(|path| path.exists()).collect()
}

#[test]
fn arrows_point_down() {
    for room in rooms() {
        for used in uses(&room, "dependencies") {
            assert!(
                layer(&room) < layer(&used),
                "crates/{room} uses crates/{used}, which is above it"
            );
        }
    }
}

#[test]
fn every_layer_is_a_room() {
    let rooms = rooms();
    for layer in LAYERS {
        assert!(rooms.iter().any(|room| room == layer), "crates/{layer} is gone");
    }
}

#[test]
fn unsafe_code_stays_at_home() {
    for room in rooms() {
        if UNSAFE.iter().any(|(home, _)| *home == room) {
            continue;
        }
        for main in ["lib.rs", "main.rs"] {
            let path = root().join("crates").join(&room).join("src").join(main);
            let Ok(text) = fs::read_to_string(&path) else { continue };
            assert!(
                text.contains("#![forbid(unsafe_code)]"),
                "{} may hold unsafe code",
                path.display()
            );
        }
    }
}

#[test]
fn files_are_rooms() {
    let long: Vec<_> = tracked("*.rs")
        .into_iter()
        .filter_map(|path| {
            let lines = fs::read_to_string(&path).ok()?.lines().count();
            (lines > MAX_LINES).then(|| format!("{}: {lines} lines", path.display()))
        })
        .collect();
    assert!(long.is_empty(), "more than {MAX_LINES} lines:\n{}", long.join("\n"));
}

#[test]
fn every_room_says_what_it_is_for() {
    for room in rooms() {
        for main in ["lib.rs", "main.rs"] {
            let path = root().join("crates").join(&room).join("src").join(main);
            let Ok(text) = fs::read_to_string(&path) else { continue };
            assert!(
                text.starts_with("//!"),
                "{} does not say what the room is for",
                path.display()
            );
        }
    }
}
