//! Which shared libraries a program asks for. Reads headers only, whatever their claims.

use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, ET_DYN, ET_EXEC, FileHeader32,
    FileHeader64, PT_DYNAMIC, PT_INTERP, PT_LOAD,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, StringTable};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

/// Longest dynamic section and string table that are read, in bytes.
const MAX_DYNAMIC: u64 = 1 << 20;
const MAX_STRINGS: u64 = 16 << 20;

/// What the dynamic section of a program or library says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dynamic {
    /// Names of the libraries it needs.
    pub(crate) needed: Vec<String>,
    /// Directories to look for them in, as written (`$ORIGIN` included).
    pub(crate) search: Vec<String>,
}

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    /// An ELF program or library that is linked dynamically.
    Dynamic(Dynamic),
    /// An ELF program without a dynamic linker.
    Static,
    /// Starts with `#!`.
    Script,
    /// Neither.
    Other,
}

/// Looks at the file at `path`.
///
/// # Errors
/// When it cannot be opened or read; what is not ELF, or broken ELF, is [`Binary::Other`].
pub(crate) fn inspect(path: &Path) -> io::Result<Binary> {
    let mut file = File::open(path)?;
    let mut start = [0; 6];
    if file.read_exact(&mut start).is_err() {
        return Ok(Binary::Other);
    }
    if start.starts_with(b"#!") {
        return Ok(Binary::Script);
    }
    if !start.starts_with(b"\x7fELF") {
        return Ok(Binary::Other);
    }
    file.rewind()?;
    Ok(parse(file, start[4]))
}

/// `class` is the fifth byte of the file: 1 for 32 bits, 2 for 64.
pub(crate) fn parse(file: impl Read + Seek, class: u8) -> Binary {
    let cache = ReadCache::new(file);
    let found = match class {
        1 => headers::<FileHeader32<Endianness>, _>(&cache),
        2 => headers::<FileHeader64<Endianness>, _>(&cache),
        _ => None,
    };
    found.unwrap_or(Binary::Other)
}

fn headers<'a, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'a>>(data: R) -> Option<Binary> {
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    if !matches!(header.e_type(endian), ET_EXEC | ET_DYN) {
        return None;
    }
    let segments = header.program_headers(endian, data).ok()?;
    let Some(dynamic) = segments.iter().find(|s| s.p_type(endian) == PT_DYNAMIC) else {
        return Some(Binary::Static);
    };
    if dynamic.p_filesz(endian).into() > MAX_DYNAMIC {
        return None;
    }
    let entries = dynamic.dynamic(endian, data).ok()??;
    let value = |tag| {
        let found = entries.iter().find(|entry| entry.tag32(endian) == Some(tag));
        found.map(|entry| entry.d_val(endian).into())
    };
    // A static program that may be loaded anywhere has a dynamic section, but asks for nothing.
    let interpreted = segments.iter().any(|s| s.p_type(endian) == PT_INTERP);
    let (Some(address), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else {
        return Some(if interpreted {
            Binary::Dynamic(Dynamic::default())
        } else {
            Binary::Static
        });
    };
    let strings = strings::<Elf, R>(data, endian, segments, address, size)?;
    let all = |tag| {
        let entries = entries.iter().filter(move |entry| entry.tag32(endian) == Some(tag));
        let texts = entries.filter_map(move |entry| entry.string(endian, strings).ok());
        texts.map(|text| String::from_utf8_lossy(text).into_owned())
    };
    let needed: Vec<_> = all(DT_NEEDED).collect();
    if needed.is_empty() && !interpreted {
        return Some(Binary::Static);
    }
    let paths = all(DT_RUNPATH).chain(all(DT_RPATH));
    let search = paths.flat_map(|p| p.split(':').map(str::to_owned).collect::<Vec<_>>()).collect();
    Some(Binary::Dynamic(Dynamic { needed, search }))
}

/// The string table, found through the segment that loads it.
fn strings<'a, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'a>>(
    data: R,
    endian: Endianness,
    segments: &[Elf::ProgramHeader],
    address: u64,
    size: u64,
) -> Option<StringTable<'a>> {
    let holds = |segment: &&Elf::ProgramHeader| {
        let start: u64 = segment.p_vaddr(endian).into();
        let len: u64 = segment.p_filesz(endian).into();
        segment.p_type(endian) == PT_LOAD && address >= start && address - start < len
    };
    let segment = segments.iter().find(holds)?;
    let within = address - segment.p_vaddr(endian).into();
    let offset = within.checked_add(segment.p_offset(endian).into())?;
    let bytes = data.read_bytes_at(offset, size.min(MAX_STRINGS)).ok()?;
    Some(StringTable::new(bytes, 0, bytes.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn own_program() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn a_rust_program_needs_the_c_library() {
        let Ok(Binary::Dynamic(found)) = inspect(&std::env::current_exe().unwrap()) else {
            panic!("not seen as a dynamic program");
        };
        assert!(found.needed.iter().any(|name| name.starts_with("libc.so")), "{found:?}");
    }

    #[test]
    fn scripts_and_text_are_told_apart() {
        let directory = std::env::temp_dir().join(format!("gridmpi-elf-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let cases = [("#!/bin/sh\nexit\n", Binary::Script), ("hello world", Binary::Other)];
        for (text, expected) in cases.into_iter().chain([("", Binary::Other)]) {
            let path = directory.join("file");
            std::fs::write(&path, text).unwrap();
            assert_eq!(inspect(&path).unwrap(), expected);
        }
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(inspect(&directory).is_err());
    }

    #[test]
    fn damaged_headers_and_truncated_files_never_panic() {
        let whole = own_program();
        let start = &whole[..whole.len().min(64 << 10)];
        for cut in (0..start.len()).step_by(97) {
            parse(Cursor::new(&start[..cut]), 2);
        }
        let mut damaged = whole.clone();
        for position in 16..1024 {
            for value in [0, 0x7f, 0xff] {
                let old = std::mem::replace(&mut damaged[position], value);
                parse(Cursor::new(&damaged), 2);
                damaged[position] = old;
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(tail in proptest::collection::vec(0u8.., 0..512), class in 0u8..4) {
            let mut bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0".to_vec();
            bytes[4] = class;
            bytes.extend(tail);
            parse(Cursor::new(bytes), class);
        }
    }
}
