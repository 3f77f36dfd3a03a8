import ArgumentParser
import ControlAPI
import HoldfastClient

struct SwitchRoomCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "switch-room",
        abstract: "Move a session to another room.",
        discussion: """
            Returns when the server has accepted the session in the new room. If the new room refuses it, the session \
            stays where it is. The choice holds until the next boot, or until the room in the session's file is \
            changed.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session.", completion: .sessions) var session: String
    @Argument(help: "The room.") var room: String

    func run() async throws {
        // The daemon waits for the server, with the time limits of the session's file.
        try await common.show(SessionSwitchRoomMethod.self, .init(session: session, room: room), timeout: nil) {
            result, terminal in
            terminal.print(printable("\(session) is in \(result.room)."))
        }
    }
}

struct ParticipantsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "participants",
        abstract: "Show who is in a session's room.",
        discussion: """
            A participant who has been away for less than the presence timeout is still listed; "holdfastctl watch" \
            shows who joins and leaves.
            """)

    @OptionGroup var common: CommonOptions
    @Argument(help: "The session.", completion: .sessions) var session: String
    @Flag(name: [.short, .long], help: "Show dates instead of durations.") var verbose = false
    @OptionGroup var selection: FieldOptions

    func validate() throws { try selection.check(with: common) }

    func run() async throws {
        var state = SessionState.connected
        if !common.json, selection.fields == nil {
            let status = SessionStatusMethod.Parameters(session: session)
            state = try await common.client().call(
                SessionStatusMethod.self, status, timeout: CommonOptions.answerTimeout
            ).state
        }
        try await common.show(RoomParticipantsMethod.self, .init(session: session), selection, of: "participants") {
            result, terminal in
            let times = Terminal.times(isAbsolute: verbose)
            terminal.print(
                table: RoomText.lines(
                    for: result, of: session, state: state, times: times, width: terminal.wrap,
                    isColoured: terminal.isColoured))
        }
    }
}

/// `participants` in words.
enum RoomText {
    /// - Parameters:
    ///   - state: the session's. Unless it is connected, it does not hear who comes and goes.
    ///   - width: that of the terminal; `nil` if the table is not cut.
    static func lines(
        for result: RoomParticipantsMethod.Result, of session: String, state: SessionState, times: TimeText,
        width: Int? = nil, isColoured: Bool = false
    ) -> [String] {
        let count = result.participants.count
        let when = state == .connected ? "" : "\(session) is \(state.rawValue); before, it knew of "
        let people = "\(count) participant\(count == 1 ? "" : "s")\(result.complete ? "" : ", and perhaps others,")"
        let overview = "\(when)\(people) in \(result.room)\(count == 0 ? "." : ":")"
        guard count > 0 else { return [printable(overview)] }
        let rows = result.participants.map {
            [
                $0.user, $0.device, $0.state.rawValue, $0.quality?.rawValue ?? "-",
                $0.since.map { times.moment($0) } ?? "-",
            ]
        }
        return Columns.wrapped(printable(overview), to: width, indent: 2) + [""]
            + Columns.table(
                ["USER", "DEVICE", "STATE", "QUALITY", "SINCE"], rows, width: width,
                marks: isColoured
                    ? result.participants.map { ($0.state == .online ? Mark.good : .off).rawValue } : nil)
    }
}
