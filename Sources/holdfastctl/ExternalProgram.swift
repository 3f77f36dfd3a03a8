import Glibc

/// Other programs on the host that commands use.
enum ExternalProgram {
    /// Replaces this process with another program, which takes over the terminal, the signals and the exit status.
    ///
    /// - Returns: the failure; on success, it does not return.
    static func become(_ words: [String]) -> CommandFailure {
        let arguments = words.map { strdup($0) } + [nil]
        // The threads that run Swift tasks have all signals blocked, and the new program inherits what is blocked or
        // ignored here. Without this, Control-C would not end it.
        var none = sigset_t()
        sigemptyset(&none)
        pthread_sigmask(SIG_SETMASK, &none, nil)
        signal(SIGPIPE, SIG_DFL)
        execvp(words[0], arguments)
        let reason = String(cString: strerror(errno))
        for argument in arguments { free(argument) }
        return CommandFailure(.failed, "\(words[0]) cannot be started: \(reason)")
    }

    /// Runs a program to its end.
    ///
    /// - Parameter isQuiet: whether its standard error is discarded.
    /// - Returns: what it wrote to standard output, and whether it ended with 0; `nil` when it cannot be started.
    static func output(of words: [String], isQuiet: Bool = false) -> (text: String, succeeded: Bool)? {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { return nil }
        // Otherwise the program would inherit both ends of the pipe.
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO)
        if isQuiet { posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) }
        defer { posix_spawn_file_actions_destroy(&actions) }
        var attributes = usualSignals([])
        defer { posix_spawnattr_destroy(&attributes) }
        let arguments = words.map { strdup($0) } + [nil]
        defer { for argument in arguments { free(argument) } }
        var pid = pid_t()
        let result = posix_spawnp(&pid, words[0], &actions, &attributes, arguments, environ)
        close(ends[1])
        defer { close(ends[0]) }
        guard result == 0 else { return nil }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = read(ends[0], &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { break }
            bytes += buffer[..<count]
        }
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
        return (String(decoding: bytes, as: UTF8.self), status == 0)
    }

    /// Runs a program on this terminal to its end. Until then, Control-C and Control-\ affect only that program.
    ///
    /// - Returns: its exit status; `nil` when it cannot be started or is killed.
    static func run(_ words: [String]) -> Int32? {
        var attributes = usualSignals([SIGINT, SIGQUIT])
        defer { posix_spawnattr_destroy(&attributes) }
        let before = [signal(SIGINT, SIG_IGN), signal(SIGQUIT, SIG_IGN)]
        defer {
            signal(SIGINT, before[0])
            signal(SIGQUIT, before[1])
        }
        let arguments = words.map { strdup($0) } + [nil]
        defer { for argument in arguments { free(argument) } }
        var pid = pid_t()
        guard posix_spawnp(&pid, words[0], nil, &attributes, arguments, environ) == 0 else { return nil }
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0, errno == EINTR {}
        return status & 0x7F == 0 ? status >> 8 & 0xFF : nil
    }

    /// Returns attributes with which a program starts with no signal blocked, although the threads that run Swift tasks
    /// have all of them blocked, and with the default action for SIGPIPE and the given signals.
    private static func usualSignals(_ numbers: [Int32]) -> posix_spawnattr_t {
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        for number in numbers + [SIGPIPE] { sigaddset(&signals, number) }
        posix_spawnattr_setsigdefault(&attributes, &signals)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK))
        return attributes
    }

    /// The path of `holdfastd`: next to this program, or where a package installs it.
    static var daemon: String {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let count = readlink("/proc/self/exe", &buffer, buffer.count)
        let own = count > 0 ? String(decoding: buffer[..<count], as: UTF8.self) : ""
        let folder = own.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
        let candidates = ["\(folder)/holdfastd", "\(folder)/../sbin/holdfastd", "/usr/sbin/holdfastd"]
        return candidates.first { access($0, X_OK) == 0 } ?? "holdfastd"
    }
}
