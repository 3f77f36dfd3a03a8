import Glibc

// What signal handlers use: a pipe that a thread can wait for, and the terminal's settings, which must be restored. All
// of it is static because a handler cannot capture anything, and it is set before the handlers are installed.

/// The signals that a command catches. Each writes a byte to a pipe.
enum CaughtSignals {
    nonisolated(unsafe) private static var ends: [Int32] = [-1, -1]
    /// The last signal caught; 0 if there was none.
    nonisolated(unsafe) private(set) static var last: Int32 = 0

    /// The end of the pipe to read from, which does not block; -1 if nothing is caught.
    static var descriptor: Int32 { ends[0] }

    static func `catch`(_ numbers: [Int32]) {
        guard ends[0] < 0, pipe(&ends) == 0 else { return }
        for end in ends {
            _ = fcntl(end, F_SETFD, FD_CLOEXEC)
            _ = fcntl(end, F_SETFL, O_NONBLOCK)
        }
        for number in numbers where !isIgnored(number) {
            signal(number) { number in
                // A second signal ends the process at once, unless it only says that the terminal's size has changed.
                if number != SIGWINCH { signal(number, SIG_DFL) }
                CaughtSignals.last = number
                var byte: UInt8 = 0
                _ = write(CaughtSignals.ends[1], &byte, 1)
            }
        }
    }
}

/// Whether the process was started so that a signal does nothing, for example by nohup(1), or by a script with `&`.
private func isIgnored(_ number: Int32) -> Bool {
    var action = sigaction()
    sigaction(number, nil, &action)
    return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == unsafeBitCast(SIG_IGN, to: Int.self)
}

/// Ends the process as the signal would have, so that a shell sees which signal it was and does not go on with a loop.
/// A signal handler may call it.
func endProcess(by number: Int32) -> Never {
    signal(number, SIG_DFL)
    // It is blocked in its own handler, and in the threads that run Swift tasks.
    var one = sigset_t()
    sigemptyset(&one)
    sigaddset(&one, number)
    pthread_sigmask(SIG_UNBLOCK, &one, nil)
    raise(number)
    _exit(128 + number)
}

/// A file that a signal which ends the process removes.
enum UnfinishedFile {
    nonisolated(unsafe) private static var path: UnsafeMutablePointer<CChar>?

    static func begin(_ path: String) {
        self.path = strdup(path)
        for number in [SIGINT, SIGTERM, SIGHUP] where !isIgnored(number) {
            signal(number) { number in
                if let path = UnfinishedFile.path { unlink(path) }
                endProcess(by: number)
            }
        }
    }

    static func end() {
        for number in [SIGINT, SIGTERM, SIGHUP] where !isIgnored(number) { signal(number, SIG_DFL) }
    }
}

/// A file that stays when a signal ends the process, which says where it is.
enum KeptFile {
    nonisolated(unsafe) private static var words: UnsafeMutablePointer<CChar>?

    /// - Parameter sentence: where the file is, without the final full stop.
    static func begin(_ sentence: String) {
        words = strdup("\nholdfastctl: \(sentence)\n")
        for number in [SIGINT, SIGTERM, SIGHUP] where !isIgnored(number) {
            signal(number) { number in
                if let words = KeptFile.words { _ = write(STDERR_FILENO, words, strlen(words)) }
                endProcess(by: number)
            }
        }
    }
}

/// The terminal's settings, while the command has changed them. A signal that ends the process restores them.
enum TerminalSettings {
    private struct Change {
        var before = termios()
        /// When the settings change: TCSANOW, or TCSAFLUSH to discard what was typed before.
        var time = TCSANOW
        /// Written to the terminal, through this descriptor, when its settings are restored.
        var end = StaticString("")
        var output = STDOUT_FILENO
    }

    nonisolated(unsafe) private static var change = Change()

    /// Turns flags off until ``restore()``.
    ///
    /// - Returns: `false` when standard input is not a terminal.
    static func turnOff(_ flags: Int32, _ time: Int32, end: StaticString, to output: Int32) -> Bool {
        change = Change(time: time, end: end, output: output)
        guard tcgetattr(STDIN_FILENO, &change.before) == 0 else { return false }
        for number in [SIGINT, SIGTERM, SIGHUP] where !isIgnored(number) {
            signal(number) { number in
                TerminalSettings.restore()
                endProcess(by: number)
            }
        }
        var settings = change.before
        settings.c_lflag &= ~tcflag_t(flags)
        tcsetattr(STDIN_FILENO, time, &settings)
        return true
    }

    static func restore() {
        _ = write(change.output, change.end.utf8Start, change.end.utf8CodeUnitCount)
        tcsetattr(STDIN_FILENO, change.time, &change.before)
        for number in [SIGINT, SIGTERM, SIGHUP] where !isIgnored(number) { signal(number, SIG_DFL) }
    }
}
