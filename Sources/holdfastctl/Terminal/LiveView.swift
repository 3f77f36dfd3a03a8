import ControlAPI
import Glibc
import HoldfastClient
import Vocabulary

/// Why a live view is drawn again.
enum LiveInput: Sendable, Equatable {
    /// A second has passed.
    case tick
    /// Something happened to a session.
    case changed
    case key(LiveKey)
    /// The terminal's size has changed.
    case resized
    /// The daemon cannot be reached, for the reason in the sentence.
    case detached(String)
}

/// A key that a person presses.
enum LiveKey: Sendable, Equatable {
    case up, down, enter, escape
    case letter(Character)

    /// - Parameter bytes: what one read of the terminal returned.
    static func keys(_ bytes: ArraySlice<UInt8>) -> [LiveKey] {
        var keys: [LiveKey] = []
        var rest = bytes
        while let byte = rest.popFirst() {
            switch byte {
            case 0x1B where rest.first == UInt8(ascii: "[") || rest.first == UInt8(ascii: "O"):
                rest = rest.dropFirst()
                switch rest.popFirst() {
                case UInt8(ascii: "A")?: keys.append(.up)
                case UInt8(ascii: "B")?: keys.append(.down)
                default: break
                }
            case 0x1B: keys.append(.escape)
            case 0x0A, 0x0D: keys.append(.enter)
            // Control-D: the terminal itself does not act on it while keys are read.
            case 0x04: keys.append(.letter("q"))
            case 0x20...0x7E: keys.append(.letter(Character(Unicode.Scalar(byte))))
            default: break
            }
        }
        return keys
    }
}

extension SessionEvent {
    /// Whether what is shown of the sessions' states changes.
    var changesStates: Bool { [.stateChanged, .phaseChanged, .sessionRemoved].contains(event) }
}

/// The inputs of a live view, in the order in which they happen.
enum LiveInputs {
    /// - Parameters:
    ///   - session: the session whose events are wanted; `nil` for all.
    ///   - readsKeys: whether keys are read from standard input.
    static func stream(_ client: HoldfastClient, session: String? = nil, readsKeys: Bool) -> AsyncStream<LiveInput> {
        AsyncStream(bufferingPolicy: .bufferingNewest(64)) { continuation in
            let events = Task {
                do {
                    for try await element in try await client.watch(session: session) {
                        switch element {
                        case .event(let event) where !event.changesStates: break
                        case .snapshot, .event, .dropped: continuation.yield(.changed)
                        case .detached(let error): continuation.yield(.detached("\(error)"))
                        }
                    }
                } catch {
                    continuation.yield(.detached(CommandFailure.sentence(of: error)))
                }
            }
            let ticks = Task {
                while !Task.isCancelled {
                    try? await Task.sleep(for: .seconds(1))
                    continuation.yield(.tick)
                }
            }
            CaughtSignals.catch([SIGWINCH])
            _ = startThread { read(readsKeys: readsKeys) { continuation.yield($0) } }
            continuation.onTermination = { _ in
                events.cancel()
                ticks.cancel()
            }
        }
    }

    /// Reads keys and changes of the terminal's size, until the terminal is gone.
    private static func read(readsKeys: Bool, _ take: (LiveInput) -> Void) {
        var buffer = [UInt8](repeating: 0, count: 64)
        while true {
            // poll ignores a negative descriptor.
            var waiting = [
                pollfd(fd: readsKeys ? STDIN_FILENO : -1, events: Int16(POLLIN), revents: 0),
                pollfd(fd: CaughtSignals.descriptor, events: Int16(POLLIN), revents: 0),
            ]
            if poll(&waiting, 2, -1) < 0, errno == EINTR { continue }
            if waiting[1].revents != 0 {
                while Glibc.read(CaughtSignals.descriptor, &buffer, buffer.count) > 0 {}
                take(.resized)
            }
            guard waiting[0].revents != 0 else { continue }
            let count = Glibc.read(STDIN_FILENO, &buffer, buffer.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return take(.key(.letter("q"))) }
            // Control-C works even while the view waits for the daemon.
            if buffer[..<count].contains(0x03) {
                TerminalSettings.restore()
                exit(EndStatus.success.rawValue)
            }
            for key in LiveKey.keys(buffer[..<count]) { take(.key(key)) }
        }
    }
}

/// Lines at the bottom of a terminal that are redrawn in place.
struct LiveLines {
    private let terminal: Terminal
    /// The length of each line that is drawn now.
    private var drawn: [Int] = []

    init(_ terminal: Terminal) {
        self.terminal = terminal
    }

    /// How many lines can be drawn.
    var room: Int { max(terminal.height - 1, 1) }

    /// Returns the first lines, and how many more there are.
    static func cut(_ lines: [String], to room: Int) -> [String] {
        guard lines.count > room else { return lines }
        let count = lines.count - (room - 1)
        return lines.prefix(room - 1) + ["… \(count) more line\(count == 1 ? "" : "s")"]
    }

    /// Returns as much about sessions as there is room for. If that is not all, those come first that are not connected.
    ///
    /// - Parameters:
    ///   - heading: comes before all of them.
    ///   - overview: comes first if there is not enough room for all.
    ///   - room: in lines.
    static func states(
        _ sessions: [(state: SessionState, lines: [String])], heading: [String], overview: [String], room: Int
    ) -> [String] {
        let all = heading + sessions.flatMap(\.lines)
        guard all.count > room, sessions.count > 1 else { return all }
        var shown = overview
        let ordered = sessions.filter { $0.state != .connected } + sessions.filter { $0.state == .connected }
        var left = ordered[...]
        // The last line says how many are missing.
        while let next = left.first, shown.count + next.lines.count < room {
            shown += next.lines
            left.removeFirst()
        }
        let count = left.count == 1 ? "1 more session" : "\(left.count) more sessions"
        return shown + ["… \(count); holdfastctl top shows all"]
    }

    /// - Parameters:
    ///   - lines: safe for a terminal. Each is cut to the terminal's width, and their number to its height.
    ///   - passed: lines to print above them, which are not redrawn.
    mutating func show(_ lines: [String], below passed: [String] = []) {
        let width = terminal.width
        let shown = Self.cut(lines, to: room).map { Terminal.fitted($0, to: width) }
        // If the terminal has become narrower, a line that was drawn may now take several rows.
        let rows = drawn.reduce(0) { $0 + max(1, ($1 + width - 1) / width) }
        let home = rows > 0 ? "\u{1B}[\(rows)F" : ""
        let text = home + (passed + shown).map { $0 + "\u{1B}[K\n" }.joined() + "\u{1B}[J"
        terminal.write(Array(text.utf8))
        drawn = shown.map { Terminal.room(for: $0) }
    }
}

/// The whole screen of a terminal, and its keys, while a view is shown.
struct FullScreen: ~Copyable {
    private let terminal: Terminal

    /// - Returns: `nil` if standard input or output is not a terminal.
    init?(_ terminal: Terminal) {
        // At the end, shows the cursor, and leaves the alternate screen.
        let end: StaticString = "\u{1B}[?25h\u{1B}[?1049l"
        guard terminal.isTerminal,
            TerminalSettings.turnOff(ICANON | ECHO | ISIG, TCSANOW, end: end, to: STDOUT_FILENO)
        else { return nil }
        self.terminal = terminal
        // Switches to the alternate screen, and hides the cursor.
        terminal.write(Array("\u{1B}[?1049h\u{1B}[?25l".utf8))
    }

    func show(_ lines: [String]) {
        let (width, height) = (terminal.width, terminal.height)
        let shown = lines.prefix(height).map { Terminal.fitted($0, to: width) + "\u{1B}[K" }
        terminal.write(Array(("\u{1B}[H" + shown.joined(separator: "\r\n") + "\u{1B}[J").utf8))
    }

    deinit {
        TerminalSettings.restore()
    }
}
