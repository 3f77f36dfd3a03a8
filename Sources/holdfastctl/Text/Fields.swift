import ArgumentParser
import ControlAPI

/// `--fields`: only the members that a script asks for, in the order it gives.
struct FieldOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Print only these members of the JSON, separated by tabs.",
            discussion: "For example session,state,outbox.queued; absent members are empty.", valueName: "list"),
        completion: .fields)
    var fields: FieldList?

    func check(with common: CommonOptions) throws {
        if fields != nil, common.json { throw ValidationError("--fields cannot be combined with --json") }
    }
}

/// Names of members. A full stop separates a member from the object it belongs to: `outbox.queued`.
struct FieldList: ExpressibleByArgument, Equatable {
    let names: [String]

    init?(argument: String) {
        names = argument.split(separator: ",", omittingEmptySubsequences: false).map(String.init)
        guard names.allSatisfy({ !$0.isEmpty }) else { return nil }
    }

    /// Returns one line for each row.
    ///
    /// - Throws: when no row has one of the members.
    func lines(_ rows: [JSONValue]) throws(CommandFailure) -> [String] {
        for name in names { try Self.check(name, in: rows) }
        return rows.map { row in names.map { Self.text(Self.value($0, of: row)) }.joined(separator: "\t") }
    }

    private static func check(_ name: String, in rows: [JSONValue]) throws(CommandFailure) {
        let parts = name.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
        var values = rows
        for (index, part) in parts.enumerated() {
            let found = values.compactMap { $0[part] }
            guard found.isEmpty, !values.isEmpty else {
                // What an object contains is unknown while every row has `null` instead. The members of "properties"
                // are unknown too, because those without a value are omitted.
                values = part == "properties" ? [] : found.filter { $0 != .null }
                continue
            }
            let object = parts[..<index].map { "\($0)." }.joined()
            let members = Set(values.flatMap { Array(($0.members ?? [:]).keys) }).sorted()
            let list = members.isEmpty ? nil : "the fields are \(members.map { object + $0 }.joined(separator: ", "))"
            throw CommandFailure(
                .usage, "there is no field \"\(name)\"",
                advice: didYouMean(nearest(to: part, among: members).map { object + $0 }) ?? list)
        }
    }

    private static func value(_ name: String, of row: JSONValue) -> JSONValue {
        name.split(separator: ".").reduce(row) { value, part in value[String(part)] ?? .null }
    }

    /// Returns any value as text without tabs and line breaks.
    private static func text(_ value: JSONValue) -> String {
        switch value {
        case .null: ""
        case .string(let text): printable(text)
        default: printable(String(decoding: OutgoingLine.encode(value) ?? [], as: UTF8.self).filter { $0 != "\n" })
        }
    }
}

extension Terminal {
    /// Prints the fields of every element of a list in an answer.
    func print(fields: FieldList, of answer: JSONValue, _ list: String) throws(CommandFailure) {
        guard case .array(let rows)? = answer[list] else { return }
        for line in try fields.lines(rows) { writeLine(line) }
    }

    /// Writes a line that is already safe for a terminal; it may contain tabs.
    func writeLine(_ line: String) { write(Array((line + "\n").utf8)) }
}
