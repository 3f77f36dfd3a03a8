import Configuration
import ControlAPI
import Glibc
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Session
import SessionCore
import Support
import Testing
import Transport

@testable import Agent

/// Real helper commands, well-behaved and not.
@Suite("A credential helper") struct CredentialHelperTests {
    /// Reached only by a helper that hangs: other tests may keep every thread busy for a long time.
    private static let patience = Duration.seconds(600)
    private static let calls = BlockingCalls(eventLoop: MultiThreadedEventLoopGroup.singleton.next())

    private func failure(
        _ script: String, timeLimit: Duration = patience, by calls: BlockingCalls = calls
    ) async throws -> String {
        let scratch = try CredentialScratch()
        let helper = try scratch.helper(script)
        do throws(Credential.Failure) {
            let fetched = try await CredentialHelper.fetch(helper, by: calls, timeLimit: timeLimit)
            Issue.record("it gave \(String(decoding: fetched.secret, as: UTF8.self))")
            return ""
        } catch {
            return error.description
        }
    }

    private func token(_ script: String) async throws -> String {
        let scratch = try CredentialScratch()
        let fetched = try await CredentialHelper.fetch(
            try scratch.helper(script), by: Self.calls, timeLimit: Self.patience)
        return String(decoding: fetched.secret, as: UTF8.self)
    }

    // MARK: Well-behaved

    @Test(arguments: ["echo s3cret", "printf s3cret", "printf 's3cret\\r\\n'", "printf '\\n s3cret \\n\\n'"])
    func `prints the token`(script: String) async throws {
        #expect(try await token(script) == "s3cret")
    }

    @Test func `is run for a reference, like any other secret`() async throws {
        let scratch = try CredentialScratch()
        let fetched = try await Credential.fetch(
            .exec(try scratch.helper("echo s3cret")), by: Self.calls, timeLimit: Self.patience)
        #expect(fetched.secret == Array("s3cret".utf8))
        #expect(fetched.file == nil)
        let file = try await Credential.fetch(.file(try scratch.write("token", "of a file\n")), by: Self.calls)
        #expect(file.secret == Array("of a file".utf8))
        #expect(file.file != nil)
    }

    @Test func `gets its arguments unchanged, without a shell`() async throws {
        let fetched = try await CredentialHelper.fetch(
            ["/bin/echo", "$HOME", "*", "a  b", ";", "id"], by: Self.calls, timeLimit: Self.patience)
        #expect(String(decoding: fetched.secret, as: UTF8.self) == "$HOME * a  b ; id")
    }

    @Test func `has an empty input and none of the daemon's files`() async throws {
        // Not closed on exec, as when a careless library opens it.
        let descriptor = open("/proc/self/maps", O_RDONLY)
        defer { close(descriptor) }
        #expect(try await token("cat; readlink /proc/$$/fd/* | grep -c maps; true") == "0")
    }

    @Test func `may write to standard error`() async throws {
        #expect(try await token("echo hello >&2; echo s3cret; echo bye >&2") == "s3cret")
    }

    @Test func `may leave a process running that keeps its output open`() async throws {
        let scratch = try CredentialScratch()
        let helper = try scratch.helper("sleep 1000 & echo $! > $here/left; echo s3cret")
        let fetched = try await CredentialHelper.fetch(helper, by: Self.calls, timeLimit: Self.patience)
        #expect(String(decoding: fetched.secret, as: UTF8.self) == "s3cret")
        let left = scratch.processes("left")
        #expect(left.count == 1 && left.allSatisfy(isRunning))
        for process in left { kill(process, SIGKILL) }
    }

    // MARK: Not well-behaved

    @Test func `that is no longer waited for is killed, with everything that it started`() async throws {
        let scratch = try CredentialScratch()
        let helper = try scratch.helper(
            """
            trap '' TERM INT HUP
            sleep 1000 &
            printf '%s\\n' $$ $! > $here/pids
            wait
            sleep 1000
            """)
        let fetching = Task { try await CredentialHelper.fetch(helper, by: Self.calls, timeLimit: Self.patience) }
        try await until("the helper has started another process") { scratch.processes("pids").count == 2 }
        let processes = scratch.processes("pids")
        #expect(processes.allSatisfy(isRunning))
        fetching.cancel()
        await #expect(throws: Credential.Failure.self) { try await fetching.value }
        try await until("both are gone") { !processes.contains(where: isRunning) }
    }

    @Test func `that hangs is reported with its time limit`() async throws {
        // Calls and a loop of its own: those of other tests take a part of the limit, and fail when it is over.
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let calls = BlockingCalls(eventLoop: group.next())
        let text = try await failure("echo s3cret; exec sleep 1000", timeLimit: .seconds(3), by: calls)
        #expect(text == "/bin/sh: it did not finish within 3.0 seconds and was killed")
        try await group.shutdownGracefully()
    }

    @Test(arguments: [
        ("exit 3", "it failed with exit status 3"),
        ("echo s3cret; echo first >&2; echo 'no net' >&2; echo >&2; exit 1", "it failed with exit status 1: no net"),
        ("printf 'a\\033[31mb\\n' >&2; exit 1", "it failed with exit status 1: a[31mb"),
        ("kill -9 $$", "it was ended by signal 9"),
        ("true", "it printed nothing"),
        ("echo; echo ' '", "it printed nothing"),
        ("echo s3cret; echo more", "it printed neither a token in one line nor a JSON object"),
        ("head -c 300 /dev/zero", "it printed neither a token in one line nor a JSON object"),
        ("echo '{s3cret'", "it did not print a valid JSON object: error at byte 1"),
        ("echo '{\"s3cret\": 1, \"s3cret\": 2}'", "it did not print a valid JSON object: error at byte 14"),
        ("echo '{\"tokne\": \"s3cret\"}'", "the JSON object that it printed has no string \"token\""),
        ("echo '{\"token\": \"\"}'", "the JSON object that it printed has no string \"token\""),
        ("echo '{\"token\": 5}'", "the JSON object that it printed has no string \"token\""),
        (
            "echo '{\"token\": \"s3cret\", \"expires\": \"tomorrow\"}'",
            "\"expires\" is not a time like 2026-11-20T09:12:44Z"
        ),
        ("echo '{\"token\": \"s3cret\", \"expires\": 5}'", "\"expires\" is not a time like 2026-11-20T09:12:44Z"),
        ("echo '{\"token\": \"s3cret\", \"expiresIn\": 0}'", "\"expiresIn\" is not a positive number of seconds"),
        ("echo '{\"token\": \"s3cret\", \"expiresIn\": \"5\"}'", "\"expiresIn\" is not a positive number of seconds"),
        (
            "echo '{\"token\": \"s3cret\", \"expires\": \"2026-11-20T09:12:44Z\", \"expiresIn\": 5}'",
            "the JSON object has both \"expires\" and \"expiresIn\""
        ),
        ("head -c 65536 /dev/zero | tr '\\0' x", "the token is longer than 65535 bytes"),
        ("head -c 70000 /dev/zero | tr '\\0' x", "it printed more than 65536 bytes"),
        ("while :; do echo s3cret; done", "it printed more than 65536 bytes"),
        ("while :; do echo s3cret; done >&2", "it printed more than 65536 bytes"),
    ])
    func `that fails is reported by what went wrong, without its output`(
        script: String, sentence: String
    ) async throws {
        #expect(try await failure(script) == "/bin/sh: \(sentence)")
    }

    @Test(arguments: [
        ("/nonexistent/helper", "it could not be run: No such file or directory"),
        ("/etc/passwd", "it could not be run: Permission denied"),
        ("/tmp", "it could not be run: Is a directory"),
    ])
    func `that cannot be run is named, and its arguments are not`(program: String, sentence: String) async throws {
        await #expect {
            try await CredentialHelper.fetch([program, "s3cret"], by: Self.calls, timeLimit: Self.patience)
        } throws: { error in
            (error as? Credential.Failure)?.description == "\(program): \(sentence)"
        }
    }

    @Test func `whose interpreter is missing says so`() async throws {
        let scratch = try CredentialScratch()
        let program = "\(scratch.path)/program"
        // Written by another process: a program that somebody has open for writing cannot be run, and a fork of another
        // test may have the descriptors of this one.
        let writer = try scratch.helper(
            "echo '#!/nonexistent/python' > $here/program; chmod 755 $here/program; echo done")
        _ = try await CredentialHelper.fetch(writer, by: Self.calls, timeLimit: Self.patience)
        await #expect {
            try await CredentialHelper.fetch([program], by: Self.calls, timeLimit: Self.patience)
        } throws: { error in
            (error as? Credential.Failure)?.description.contains("the interpreter that its first line names") == true
        }
    }

    @Test func `whose file system does not answer is not waited for beyond its time`() async throws {
        let gate = ConditionLock(value: false)
        let blocked = Self.calls.run("/hung/helper", within: nil) {
            gate.lock(whenValue: true)
            gate.unlock()
        }
        await #expect {
            try await CredentialHelper.fetch(["/hung/helper"], by: Self.calls, timeLimit: .milliseconds(1))
        } throws: { error in
            (error as? Credential.Failure)?.description
                == "/hung/helper: it could not be run: there was no answer within 0.001 seconds"
        }
        gate.lock()
        gate.unlock(withValue: true)
        try await blocked.get()
    }

    // MARK: Many

    @Test func `beyond the number that may run at once waits for another to end, or until it is cancelled`()
        async throws
    {
        let scratch = try CredentialScratch()
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let helpers = RunningHelpers(
            eventLoop: loop, calls: BlockingCalls(eventLoop: loop), maximumRuns: 1, timeLimit: Self.patience)
        let pipe = "\(scratch.path)/pipe"
        try #require(mkfifo(pipe, 0o600) == 0)
        let command = try scratch.helper("echo >> $here/runs; cat $here/pipe")
        let first = Task { try await helpers.fetch(command) }
        try await until("the first runs") { scratch.read("runs") == "\n" }
        let second = Task { try await helpers.fetch(command) }
        try await until("the second waits") { await helpers.waiting.count >= 1 }
        let third = Task { try await helpers.fetch(["/bin/echo", "third"]) }
        try await until("the third waits") { await helpers.waiting.count >= 2 }
        second.cancel()
        await #expect(throws: Credential.Failure.self) { try await second.value }
        #expect(scratch.read("runs") == "\n")
        try scratch.write("pipe", "first")
        #expect(try await first.value.secret == Array("first".utf8))
        #expect(try await third.value.secret == Array("third".utf8))
        await helpers.stop()
        await #expect(throws: Credential.Failure.self) { try await helpers.fetch(["/bin/echo", "late"]) }
    }

    // MARK: When a token ends

    private static let wall = Timestamp(rawValue: 1_800_000_000_000)
    private static let boot = Instant(nanoseconds: 1_000_000_000_000)

    @Test(arguments: [
        (
            #"{"token": "t", "expires": "2027-01-15T08:01:40Z", "type": "Bearer"}"#,
            CredentialEnd.byWallClock(.init(rawValue: 1_800_000_100_000))
        ),
        (#"{"token": "t", "expiresIn": 100}"#, .byBootClock(.init(nanoseconds: 1_100_000_000_000))),
        (#" {"token": "t", "expiresIn": 0.5} "#, .byBootClock(.init(nanoseconds: 1_000_500_000_000))),
        (#"{"token": "t", "expiresIn": 1e300}"#, .byBootClock(.init(nanoseconds: 3_155_761_000_000_000_000))),
        (#"{"token": "t", "expires": null}"#, nil), (#"{"token": "t"}"#, nil), ("t", nil),
    ])
    func `tells when the token expires, if it knows`(output: String, end: CredentialEnd?) throws {
        let fetched = try CredentialHelper.read(Array(output.utf8), bootClock: Self.boot)
        #expect(fetched.secret == Array("t".utf8))
        #expect(fetched.end == end)
    }

    @Test func `tells a date that is converted only when used, since the clock may be set`() {
        let end = CredentialEnd.byWallClock(Timestamp(rawValue: Self.wall.rawValue + 60_000))
        let later = Self.boot.advanced(by: .seconds(10))
        #expect(end.instant(wallClock: Self.wall, bootClock: Self.boot) == Self.boot.advanced(by: .seconds(60)))
        let set = Timestamp(rawValue: Self.wall.rawValue + 40_000)
        #expect(end.instant(wallClock: set, bootClock: later) == later.advanced(by: .seconds(20)))
        let length = CredentialEnd.byBootClock(Self.boot.advanced(by: .seconds(60)))
        #expect(length.instant(wallClock: set, bootClock: later) == Self.boot.advanced(by: .seconds(60)))
        #expect(length.date(wallClock: set, bootClock: later).rawValue == set.rawValue + 50_000)
        let never = CredentialEnd.byWallClock(Timestamp(rawValue: .max))
        #expect(never.instant(wallClock: Self.wall, bootClock: Self.boot) > Self.boot)
    }
}
