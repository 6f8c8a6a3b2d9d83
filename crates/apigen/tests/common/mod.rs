//! The vendors that `tools/setup` installs, and how a C program is built and started with each.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// One vendor MPI on this machine.
pub struct Vendor {
    /// As in an ABI's `[absent]`.
    pub tag: &'static str,
    /// The name of its ABI.
    pub abi: &'static str,
    prefix: Option<&'static str>,
    compiler: &'static str,
    launcher: &'static str,
}

pub const VENDORS: [Vendor; 5] = [
    Vendor {
        tag: "mpich-4.0",
        abi: "mpich",
        prefix: None,
        compiler: "mpicc.mpich",
        launcher: "mpiexec.mpich",
    },
    Vendor {
        tag: "mpich-5.0",
        abi: "mpich",
        prefix: Some("mpich5"),
        compiler: "mpicc",
        launcher: "mpiexec",
    },
    Vendor {
        tag: "intel-2021.19",
        abi: "mpich",
        prefix: Some("impi"),
        compiler: "mpicc",
        launcher: "mpiexec",
    },
    Vendor {
        tag: "openmpi-4.1",
        abi: "openmpi",
        prefix: None,
        compiler: "mpicc.openmpi",
        launcher: "mpiexec.openmpi",
    },
    Vendor {
        tag: "openmpi-5.0",
        abi: "openmpi",
        prefix: Some("openmpi5"),
        compiler: "mpicc",
        launcher: "mpiexec",
    },
];

impl Vendor {
    fn command(&self, program: &str) -> Command {
        let vendors =
            std::env::var_os("GRIDMPI_VENDORS").map_or(root().join(".vendors"), PathBuf::from);
        let Some(prefix) = self.prefix.map(|name| vendors.join(name)) else {
            return Command::new(program);
        };
        let mut command = Command::new(prefix.join("bin").join(program));
        if self.tag.starts_with("intel") {
            command.env("I_MPI_ROOT", &prefix).env("I_MPI_PIN", "0");
        }
        command
    }

    /// Runs the vendor's C compiler. A vendor that is not installed fails the test: `tools/setup` installs all.
    pub fn compile(&self, arguments: &[&str]) -> Output {
        let run = self.command(self.compiler).args(arguments).output();
        run.unwrap_or_else(|error| {
            panic!("{} of {}: {error}; run tools/setup", self.compiler, self.tag)
        })
    }

    /// Builds a C program in `scratch` and gives its path.
    pub fn build(&self, scratch: &Path, source: &str) -> PathBuf {
        let (file, program) = (scratch.join(format!("{}.c", self.tag)), scratch.join(self.tag));
        std::fs::write(&file, source).unwrap();
        let flags = ["-w", "-DOMPI_OMIT_MPI1_COMPAT_DECLS=0", "-o"];
        let built = self.compile(&[&flags[..], &[text(&program), text(&file)]].concat());
        assert!(built.status.success(), "{}: {}", self.tag, String::from_utf8_lossy(&built.stderr));
        program
    }

    /// Starts a program on two ranks, with our library below it or without.
    pub fn run(&self, program: &Path, preload: Option<&Path>) -> Output {
        let mut command = self.command(self.launcher);
        if self.abi == "openmpi" {
            command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
        }
        match (preload, self.abi) {
            (Some(library), "openmpi") => {
                command.args(["-x", &format!("LD_PRELOAD={}", text(library))])
            }
            (Some(library), _) => command.args(["-genv", "LD_PRELOAD", text(library)]),
            (None, _) => &mut command,
        };
        let bounded = Command::new("timeout")
            .arg("60")
            .arg(command.get_program())
            .args(command.get_args())
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .args(["-n", "2"])
            .arg(program)
            .output();
        bounded.unwrap()
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// An empty directory for this test.
pub fn scratch(test: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Builds one ABI's library and gives its path.
pub fn library(abi: &str) -> PathBuf {
    let package = format!("gridmpi-interpose-{abi}");
    let built = Command::new(env!("CARGO"))
        .args(["build", "-q", "--message-format=json", "-p", &package, "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let name = format!("libgridmpi_{abi}.so");
    let lines = String::from_utf8(built.stdout).unwrap();
    let messages =
        lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    messages
        .filter_map(|message| message["filenames"].as_array().cloned())
        .flatten()
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .find(|file| file.ends_with(&name))
        .expect("cargo names the library that it built")
}
