import ControlAPI
import Glibc
import HoldfastClient

/// A message for standard error. All messages take this form, because with `--json` a program reads them: each line is
/// then an object with the member `error` or `notice`.
struct Complaint: Equatable {
    /// For people.
    let lines: [String]
    /// For programs.
    let json: JSONValue

    /// An error that ends the command, or a part of its work.
    ///
    /// - Parameter status: the exit status after a signal; `nil` for that of the ending.
    init(_ ending: Ending, status: Int32? = nil) {
        lines = ending.output.isEmpty ? [] : [ending.output]
        var members = ending.json.members ?? [:]
        if let status { members["status"] = .integer(Int64(status)) }
        json = .object(["error": .object(members)])
    }

    /// An error in a file of the configuration.
    ///
    /// - Parameter words: what people are told; `nil`: where the error is, and its message.
    init(_ problem: ConfigurationProblem, saying words: String? = nil) {
        lines = [words.map(printable) ?? ReloadText.problem(problem)]
        var members = JSONText.value(problem).members ?? [:]
        members["status"] = .integer(Int64(EndStatus.failed.rawValue))
        json = .object(["error": .object(members)])
    }

    /// Something the user should know, although the command continues.
    ///
    /// - Parameter sentence: without the final full stop.
    init(notice sentence: String) {
        lines = printableLines("holdfastctl: \(sentence)")
        json = .object(["notice": .object(["message": .string(sentence)])])
    }

    /// A step that the command has completed before it continues.
    ///
    /// - Parameter sentence: without the final full stop.
    init(done sentence: String) {
        lines = [printable("\(sentence).")]
        json = .object(["notice": .object(["message": .string(sentence)])])
    }

    /// The connection to the daemon is lost, and the command waits for the daemon.
    init(detached error: ClientError) {
        self.init(notice: "\(error); waiting for the daemon")
    }

    func write(json isJSON: Bool) {
        if isJSON {
            if !lines.isEmpty { Terminal.writeError(JSONText.line(json)) }
        } else {
            Terminal.complain(lines)
        }
    }
}

extension CommonOptions {
    func complain(_ complaint: Complaint) { complaint.write(json: json) }

    func complain(_ problems: [ConfigurationProblem]) {
        for problem in problems { complain(Complaint(problem)) }
    }
}
