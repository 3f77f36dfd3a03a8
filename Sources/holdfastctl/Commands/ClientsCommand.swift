import ArgumentParser
import ControlAPI
import Glibc
import HoldfastClient

struct ClientsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "clients",
        abstract: "Show which programs are connected to the daemon, and what they use.",
        discussion: """
            CALLS are those that were answered and, after a "+", those in flight. UNREAD is what waits until the program \
            reads, and DROPPED how many events and messages it missed because it did not read.
            """)

    @OptionGroup var common: CommonOptions
    @Flag(name: [.short, .long], help: "Show dates instead of durations.") var verbose = false
    @OptionGroup var selection: FieldOptions

    func validate() throws { try selection.check(with: common) }

    func run() async throws {
        let answer = ClientText.named(
            try await common.client().callUndecoded(
                DaemonClientsMethod.self, NoParameters(), timeout: CommonOptions.answerTimeout), by: .thisHost)
        let terminal = common.terminal
        if let fields = selection.fields {
            try terminal.print(fields: fields, of: answer, "clients")
        } else if common.json {
            terminal.print(json: answer)
        } else {
            terminal.print(
                table: try ClientText.lines(
                    for: answer, times: Terminal.times(isAbsolute: verbose), width: terminal.wrap,
                    isColoured: terminal.isColoured))
        }
    }
}

/// The names of processes and users. The service may not see the processes of others (`ProtectProc=`), so this command
/// looks them up.
struct HostNames: Sendable {
    var ownPID: Int32
    /// The name of a process; `nil` if it is gone or hidden.
    var program: @Sendable (Int32) -> String?
    /// The name of a user; `nil` if it has none.
    var user: @Sendable (UInt32) -> String?

    static let thisHost = HostNames(
        ownPID: getpid(),
        program: { pid in
            guard let bytes = try? InputFile.read("/proc/\(pid)/comm") else { return nil }
            return printable(String(decoding: bytes.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self))
        },
        user: { uid in getpwuid(uid).map { printable(String(cString: $0.pointee.pw_name)) } })
}

/// `clients` in words.
enum ClientText {
    /// Adds the names of the program and of the user to each client.
    static func named(_ answer: JSONValue, by names: HostNames) -> JSONValue {
        guard var members = answer.members, case .array(let clients)? = members["clients"] else { return answer }
        let pids = clients.map { $0["pid"]?.wholeNumber.flatMap(Int32.init(exactly:)) }
        // In a container, the numbers of the daemon's processes may mean others here, or none.
        let isSameHost = pids.contains(names.ownPID)
        members["clients"] = .array(
            zip(clients, pids).map { client, pid in
                var members = client.members ?? [:]
                let uid = client["uid"]?.wholeNumber.flatMap(UInt32.init(exactly:))
                let program = isSameHost ? pid.flatMap(names.program) : nil
                members["program"] = program.map(JSONValue.string) ?? .null
                members["user"] = uid.flatMap(names.user).map(JSONValue.string) ?? .null
                return .object(members)
            })
        return .object(members)
    }

    /// - Parameters:
    ///   - answer: with the names.
    ///   - width: that of the terminal; `nil` if the table is not cut.
    static func lines(
        for answer: JSONValue, times: TimeText, width: Int? = nil, isColoured: Bool = false
    ) throws -> [String] {
        let clients = try decode(DaemonClientsMethod.Result.self, answer).clients
        guard case .array(let named)? = answer["clients"] else { return [] }
        let count = clients.count
        let rows = zip(clients, named).map { client, names in
            [
                // A daemon in a container knows no number for a process outside it.
                program(client, names["program"]?.text), client.pid > 0 ? "\(client.pid)" : "-",
                names["user"]?.text ?? "\(client.uid)",
                client.roles.contains(.control)
                    ? "control" : client.roles.isEmpty ? "-" : client.roles.map(\.rawValue).joined(separator: ", "),
                times.moment(client.since),
                "\(client.calls.answered)" + (client.calls.inFlight > 0 ? "+\(client.calls.inFlight)" : ""),
                client.unread > 0 ? TimeText.size(Int64(client.unread)) : "-",
                client.dropped > 0 ? "\(client.dropped)" : "-", uses(client),
            ]
        }
        return ["\(count) program\(count == 1 ? " is" : "s are") connected:", ""]
            + Columns.table(
                ["PROGRAM", "PID", "USER", "ROLE", "SINCE", "CALLS", "UNREAD", "DROPPED", "RECEIVES"], rows,
                // A client is in no state that a mark could show.
                width: width, marks: isColoured ? [] : nil)
    }

    /// The name of the process, and what the program calls itself if that says more.
    private static func program(_ client: ConnectedClient, _ program: String?) -> String {
        guard let program else { return client.client ?? "-" }
        guard let own = client.client, !own.hasPrefix(program) else { return program }
        return "\(program) (\(own))"
    }

    private static func uses(_ client: ConnectedClient) -> String {
        let watches = client.watches == 0 ? [] : [counted(client.watches, "watch", "watches")]
        let sessions = client.sessions.map { session in
            let live =
                session.subscriptions == 0 ? [] : [counted(session.subscriptions, "subscription", "subscriptions")]
            let durable =
                session.consumers.isEmpty
                ? [] : [(session.consumers.count == 1 ? "consumer " : "consumers ") + listed(session.consumers)]
            return "\(session.session): \((live + durable).joined(separator: ", "))"
        }
        let all = watches + sessions
        return all.isEmpty ? "-" : all.joined(separator: "; ")
    }

    private static func counted(_ count: Int, _ one: String, _ many: String) -> String {
        "\(count) \(count == 1 ? one : many)"
    }
}
