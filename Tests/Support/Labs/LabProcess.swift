import Foundation
public import Glibc

/// A program that a test started. Tests kill nothing else: they kill it by its own id, and the kernel kills it when the
/// test process dies.
///
/// A separate thread starts it and waits for it: the kernel's parent-death signal depends on the thread that forked,
/// and Swift's pool has too few threads to wait in.
public actor LabProcess {
    /// How a process ended.
    public enum Ending: Hashable, Sendable {
        case exited(Int32)
        case killed(signal: Int32)
    }

    public struct Failure: Error, CustomStringConvertible {
        public var description: String
    }

    /// The command, for messages.
    public nonisolated let name: String
    public nonisolated let pid: pid_t
    /// The files that standard output and standard error go to.
    public nonisolated let outputFile: String
    public nonisolated let errorFile: String

    private var ending: Ending?
    private var waiters: [Int: CheckedContinuation<Ending?, Never>] = [:]
    private var lastWaiter = 0

    private init(name: String, pid: pid_t, outputFile: String, errorFile: String) {
        self.name = name
        self.pid = pid
        self.outputFile = outputFile
        self.errorFile = errorFile
    }

    /// Starts a program found in PATH.
    ///
    /// - Parameter files: the prefix of the paths of its output files, which are kept.
    public static func start(_ words: [String], files: String) async throws -> LabProcess {
        let command = ["setpriv", "--pdeathsig", "KILL", "--"] + words
        return try await withCheckedThrowingContinuation { continuation in
            Thread.detachNewThread {
                let pid: pid_t
                do {
                    pid = try spawn(command, output: files + ".out", errors: files + ".err")
                } catch {
                    continuation.resume(throwing: error)
                    return
                }
                let process = LabProcess(
                    name: words.joined(separator: " "), pid: pid, outputFile: files + ".out",
                    errorFile: files + ".err")
                continuation.resume(returning: process)
                // It stays a zombie until the actor reaps it, so that its id can never mean another process.
                var information = siginfo_t()
                while waitid(P_PID, id_t(pid), &information, WEXITED | WNOWAIT) != 0, errno == EINTR {}
                Task { await process.take() }
            }
        }
    }

    /// Runs a program to its end.
    ///
    /// - Parameter limit: longer for what computes or writes for half a minute on an idle machine.
    /// - Returns: what it wrote to standard output.
    /// - Throws: an error with what it wrote to standard error, unless it exits with 0.
    @discardableResult
    public static func run(
        _ words: [String], files: String, within limit: Duration = .seconds(180)
    ) async throws -> String {
        let process = try await start(words, files: files)
        let ending = try await process.ended(within: limit)
        let output = process.output
        let errors = process.errors
        unlink(process.outputFile)
        unlink(process.errorFile)
        guard ending == .exited(0) else { throw Failure(description: "\(process.name): \(ending): \(errors)") }
        return output
    }

    /// What it has written to standard output so far.
    public nonisolated var output: String { Self.text(of: outputFile) }
    /// What it has written to standard error so far.
    public nonisolated var errors: String { Self.text(of: errorFile) }

    private static func text(of file: String) -> String {
        String(decoding: FileManager.default.contents(atPath: file) ?? Data(), as: UTF8.self)
    }

    public var isRunning: Bool { ending == nil }

    /// How much processor time it has used; zero once it is gone.
    public nonisolated var processorTime: Duration {
        let line = (try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8)) ?? ""
        // The name may contain blanks; after it, the times are the 12th and the 13th field (proc(5)).
        let fields = line[(line.lastIndex(of: ")") ?? line.startIndex)...].split(separator: " ")
        let ticks = fields.count > 13 ? (Int(fields[12]) ?? 0) + (Int(fields[13]) ?? 0) : 0
        return .seconds(ticks) / sysconf(Int32(_SC_CLK_TCK))
    }

    /// Sends a signal, if it is still running.
    public func signal(_ number: Int32) {
        if ending == nil { kill(pid, number) }
    }

    /// Kills it with SIGKILL, and returns when it is gone.
    public func killed() async throws {
        signal(SIGKILL)
        try await ended(within: .seconds(180))
    }

    /// Waits until it has ended.
    @discardableResult
    public func ended(within limit: Duration) async throws -> Ending {
        if let ending { return ending }
        lastWaiter += 1
        let number = lastWaiter
        let timer = Task {
            try await Patience.last(limit)
            self.waiters.removeValue(forKey: number)?.resume(returning: nil)
        }
        defer { timer.cancel() }
        let ending = await withCheckedContinuation { waiters[number] = $0 }
        guard let ending else { throw Failure(description: "\(name) still runs after \(limit)") }
        return ending
    }

    private func take() {
        var status: Int32 = 0
        guard waitpid(pid, &status, 0) == pid else { return }
        let ending = status & 0x7f == 0 ? Ending.exited(status >> 8 & 0xff) : .killed(signal: status & 0x7f)
        self.ending = ending
        for waiter in waiters.values { waiter.resume(returning: ending) }
        waiters = [:]
    }

    private static func spawn(_ words: [String], output: String, errors: String) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        let flags = O_WRONLY | O_CREAT | O_APPEND
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output, flags, 0o644)
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors, flags, 0o644)
        // NIO's sockets stay open on exec: a connection of another test would stay open as long as this program.
        try closeFurtherDescriptors(&actions)
        // Otherwise the program would start with the signals blocked that this thread blocks, and those ignored that
        // this process ignores: a shell makes what it starts in the background ignore SIGINT.
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        var all = sigset_t()
        sigfillset(&all)
        posix_spawnattr_setsigdefault(&attributes, &all)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))
        var arguments = words.map { strdup($0) }
        defer { arguments.forEach { free($0) } }
        arguments.append(nil)
        var pid = pid_t()
        let failure = posix_spawnp(&pid, words[0], &actions, &attributes, arguments, environ)
        guard failure == 0 else {
            throw Failure(description: "\(words.joined(separator: " ")): \(String(cString: strerror(failure)))")
        }
        return pid
    }
}

/// Makes a program start with no descriptors but the standard ones.
///
/// One action for each of the thousands that might be open costs more than the rest of the start.
public func closeFurtherDescriptors(_ actions: inout posix_spawn_file_actions_t) throws {
    // posix_spawn_file_actions_addclosefrom_np(3), which glibc's headers declare only if _GNU_SOURCE is defined.
    guard let symbol = dlsym(nil, "posix_spawn_file_actions_addclosefrom_np"),
        unsafeBitCast(
            symbol, to: (@convention(c) (UnsafeMutablePointer<posix_spawn_file_actions_t>, Int32) -> Int32).self)(
                &actions, STDERR_FILENO + 1) == 0
    else { throw LabProcess.Failure(description: "this C library is older than 2.34") }
}
