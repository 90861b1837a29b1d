//! Finds the process that listens on a port, from the kernel's tables below `/proc`.

use std::fs;

/// The number of the socket that listens on a port, in a table such as `/proc/net/tcp`.
pub(crate) fn listening(table: &str, port: u16) -> Option<u64> {
    fs::read_to_string(table).ok()?.lines().skip(1).find_map(|line| listening_in_line(line, port))
}

fn listening_in_line(line: &str, port: u16) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let local = u16::from_str_radix(fields.get(1)?.rsplit_once(':')?.1, 16).ok()?;
    // 0A is TCP_LISTEN.
    (local == port && *fields.get(3)? == "0A").then(|| fields.get(9)?.parse().ok())?
}

/// The process that has a socket, and its name.
pub(crate) fn owner(inode: u64) -> Option<(u32, String)> {
    let wanted = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|link| link.as_os_str() == wanted.as_str())
    })?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some((pid, name.trim().to_owned()))
}

/// Whether some process listens on a port in the network namespace of a process.
pub(crate) fn is_listening(pid: i32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|table| listening(&format!("/proc/{pid}/net/{table}"), port).is_some())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn listener_is_found_with_its_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let inode = listening("/proc/net/tcp", port).unwrap();
        assert_eq!(owner(inode).unwrap().0, std::process::id());
        assert!(is_listening(i32::try_from(std::process::id()).unwrap(), port));
        drop(listener);
        assert_eq!(listening("/proc/net/tcp", port), None);
    }
}
