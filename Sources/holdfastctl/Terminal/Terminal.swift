import ControlAPI
import Glibc
import HoldfastClient
import Vocabulary

/// Standard output, standard error and the local clock, as commands use them.
struct Terminal {
    enum Colour: String, CaseIterable {
        case auto, always, never
    }

    /// Whether to use colour and glyphs: as `--color` says, or on a terminal unless NO_COLOR has a value, or TERM has
    /// none or is `dumb`.
    var isColoured: Bool
    var isTerminal: Bool
    /// Whether lines that were written can be overwritten in place.
    var canDraw: Bool
    /// What the command has done, without the final full stop. If the output cannot be written, the error says this:
    /// otherwise the command would be repeated.
    var done: String?
    /// What it has not done, if `done` is not all.
    var rest: String?

    /// - Parameter colour: the value of `--color`.
    init(_ colour: Colour = .auto) {
        isTerminal = isatty(STDOUT_FILENO) == 1
        let refused = getenv("NO_COLOR").map { $0.pointee != 0 } ?? false
        let kind = getenv("TERM").map { String(cString: $0) } ?? ""
        canDraw = isTerminal && kind != "dumb" && !kind.isEmpty
        isColoured =
            switch colour {
            case .auto: canDraw && !refused
            case .always: true
            case .never: false
            }
    }

    /// The width to wrap lines at on a terminal; `nil` otherwise, since a program gets whole lines.
    var wrap: Int? { isTerminal ? width : nil }

    /// How many columns a line has; 80 if unknown.
    var width: Int {
        var size = winsize()
        if isTerminal, ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 0 { return Int(size.ws_col) }
        return getenv("COLUMNS").flatMap { Int(String(cString: $0)) }.map { min(max($0, 40), 1000) } ?? 80
    }

    /// How many lines there are; 24 if unknown.
    var height: Int {
        var size = winsize()
        if isTerminal, ioctl(STDOUT_FILENO, UInt(TIOCGWINSZ), &size) == 0, size.ws_row > 0 { return Int(size.ws_row) }
        return 24
    }

    /// Returns how many columns a line takes; colours take none.
    static func room(for line: String) -> Int {
        var isEscape = false
        return line.reduce(0) { sum, character in
            if character == "\u{1B}" { isEscape = true }
            guard isEscape else { return sum + character.columns }
            if character.isLetter { isEscape = false }
            return sum
        }
    }

    /// Cuts a line to a number of columns; colours take none.
    static func fitted(_ line: String, to width: Int) -> String {
        guard room(for: line) > width else { return line }
        // The ellipsis takes the last column.
        var left = max(width - 1, 1)
        var fitted = ""
        var isEscape = false
        let hasColours = line.contains("\u{1B}")
        for character in line {
            if character == "\u{1B}" { isEscape = true }
            if !isEscape {
                left -= character.columns
                if left < 0 { break }
            } else if character.isLetter {
                isEscape = false
            }
            fitted.append(character)
        }
        return fitted + "…" + (hasColours ? "\u{1B}[0m" : "")
    }

    /// Prints a text. Of its control characters, only line breaks and colours are kept.
    func print(_ text: String) {
        write(Array(Self.shown(text).utf8))
    }

    static func shown(_ text: String) -> String {
        text.split(separator: "\n", omittingEmptySubsequences: false).map { plain($0) + "\n" }.joined()
    }

    /// Returns a line without control characters, except for `ESC [ digits m`.
    private static func plain(_ line: Substring) -> String {
        line.split(separator: "\u{1B}[", omittingEmptySubsequences: false).enumerated().map { index, part in
            guard index > 0 else { return printable(String(part)) }
            let digits = part.prefix { $0.isASCII && $0.isNumber }
            let isColour = !digits.isEmpty && digits.count <= 3 && part.dropFirst(digits.count).first == "m"
            return (isColour ? "\u{1B}[" : "\u{FFFD}[") + printable(String(part))
        }.joined()
    }

    func print(_ lines: [String]) {
        for line in lines { print(line) }
    }

    /// Prints lines that a terminal wraps between words.
    func print(wrapped lines: [String]) {
        for line in lines { print(Columns.wrapped(line, to: wrap, indent: line.prefix { $0 == " " }.count + 2)) }
    }

    /// Prints a table. On a terminal, its lines are cut to the width.
    func print(table lines: [String]) {
        print(isTerminal ? lines.map { Self.fitted($0, to: width) } : lines)
    }

    /// Ends the command when the reader of its output is gone. For commands that may be silent for a long time; others
    /// notice it when they write.
    func endWithReader() {
        guard !isTerminal else { return }
        _ = startThread {
            var output = pollfd(fd: STDOUT_FILENO, events: 0, revents: 0)
            while poll(&output, 1, -1) < 0, errno == EINTR {}
            if output.revents & Int16(POLLERR | POLLHUP) != 0 { exit(EndStatus.failed.rawValue) }
        }
    }

    /// Prints the result of a method, with `"schema": 1` added.
    func print(json value: JSONValue) {
        let line = JSONText.line(value)
        write(isTerminal ? JSONText.escaped(line, inASCII: TerminalEncoding.isASCII) : line)
    }

    func write(_ bytes: [UInt8]) {
        guard let code = Self.write(bytes, to: STDOUT_FILENO) else { return }
        // A reader that has gone (`| head`) is not an error worth a message, unless the command changed something.
        if code != EPIPE || done != nil {
            let failure = CommandFailure(unwritten: String(cString: strerror(code)), done: done, rest: rest)
            let words = CommandWords(Array(CommandLine.arguments.dropFirst()))
            Complaint(Ending(failure)).write(json: words.wantsJSON)
        }
        exit(EndStatus.failed.rawValue)
    }

    /// Writes lines to standard error. Commands use a ``Complaint`` instead, which also has the form for programs.
    static func complain(_ lines: [String]) {
        var size = winsize()
        let isTerminal = isatty(STDERR_FILENO) == 1 && ioctl(STDERR_FILENO, UInt(TIOCGWINSZ), &size) == 0
        let width = isTerminal && size.ws_col > 0 ? Int(size.ws_col) : nil
        let shown = lines.flatMap { $0.split(separator: "\n", omittingEmptySubsequences: false) }.flatMap { line in
            Columns.wrapped(String(line), to: width, indent: line.prefix { $0 == " " }.count + 2)
        }
        _ = write(Array(shown.map(Self.shown).joined().utf8), to: STDERR_FILENO)
    }

    /// Writes a question; the answer follows on the same line.
    static func prompt(_ question: String) {
        _ = write(Array(question.utf8), to: STDERR_FILENO)
    }

    /// Writes a line of JSON to standard error.
    static func writeError(_ line: [UInt8]) {
        _ = write(line, to: STDERR_FILENO)
    }

    /// - Returns: the `errno`; `nil` if there was no error.
    private static func write(_ bytes: [UInt8], to descriptor: Int32) -> Int32? {
        let isShown = TerminalEncoding.isASCII && isatty(descriptor) == 1
        return writeAll(isShown ? Array(String(decoding: bytes, as: UTF8.self).inASCII.utf8) : bytes, to: descriptor)
    }

    /// Returns a sentence about a session, with a mark in the colour of its state if colours are on.
    func marked(_ sentence: String, _ state: SessionState) -> String {
        guard isColoured else { return sentence }
        return "\u{1B}[\(Self.colour(state))m●\u{1B}[0m \(sentence)"
    }

    /// Prints the sentence about a session, as it is now.
    func print(sentenceOf status: SessionStatus) {
        let sentence = StatusText.sentence(for: status, times: Self.times())
        print(Columns.wrapped(marked(sentence, status.state), to: wrap, indent: 2))
    }

    /// The number of a state's colour in an escape sequence.
    static func colour(_ state: SessionState) -> String {
        let mark: Mark =
            switch state {
            case .connected: .good
            case .connecting, .reconnecting, .disconnecting: .trouble
            case .failed: .bad
            case .disconnected: .off
            }
        return mark.rawValue
    }

    /// - Parameter isAbsolute: whether to show dates instead of spans.
    static func times(isAbsolute: Bool = false) -> TimeText {
        let now = Timestamp.now
        return TimeText(now: now, offset: offset(at: time_t(now.rawValue / 1000)), isAbsolute: isAbsolute)
    }

    private static func offset(at seconds: time_t) -> Int64 {
        var seconds = seconds
        var fields = tm()
        return localtime_r(&seconds, &fields) == nil ? 0 : Int64(fields.tm_gmtoff)
    }
}

/// What the colour of a mark says about whatever it stands before: the colour's number in an escape sequence.
enum Mark: String {
    case good = "32"
    case trouble = "33"
    case bad = "31"
    case off = "90"
}

/// What `--json` prints.
enum JSONText {
    /// The version of the output's format.
    static let schema: Int64 = 1

    /// Returns one line: the object with `"schema": 1` added.
    static func line(_ value: JSONValue) -> [UInt8] {
        var members = value.members ?? ["value": value]
        members["schema"] = .integer(schema)
        return OutgoingLine.encode(JSONValue.object(members)) ?? []
    }

    /// Returns the same JSON with all control characters escaped. They occur only in strings, where JSON allows most of
    /// them unescaped.
    ///
    /// - Parameter inASCII: whether to escape everything else that is not ASCII, too.
    static func escaped(_ line: [UInt8], inASCII: Bool = false) -> [UInt8] {
        let text = String(decoding: line, as: UTF8.self)
        let isShown = { (scalar: Unicode.Scalar) in scalar.isPlain && (scalar.isASCII || !inASCII) }
        guard !text.unicodeScalars.dropLast().allSatisfy(isShown) else { return line }
        var shown = ""
        for scalar in text.unicodeScalars.dropLast() {
            if isShown(scalar) {
                shown.unicodeScalars.append(scalar)
            } else {
                for unit in scalar.utf16 {
                    let digits = String(unit, radix: 16)
                    shown += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
                }
            }
        }
        return Array((shown + "\n").utf8)
    }

    /// Returns a value of this command's own as JSON.
    static func value(_ encodable: some Encodable) -> JSONValue {
        guard let line = OutgoingLine.encode(encodable), let value = try? JSONValue(parsing: line[...]) else {
            return .null
        }
        return value
    }
}
