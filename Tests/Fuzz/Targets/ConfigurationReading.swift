@testable import Configuration

/// A file, as a session's and as the daemon's. What is wrong with it is told with a line that it has, in a sentence.
func readConfiguration(_ bytes: [UInt8]) {
    let text = String(decoding: bytes, as: UTF8.self)
    let file = ConfigurationFile(path: "fuzz.toml", text: text)
    let lines = text.unicodeScalars.count { $0 == "\n" } + 1
    func check(_ errors: ConfigurationErrors) {
        precondition(!errors.list.isEmpty, "nothing is wrong, and it is refused")
        for error in errors.list {
            precondition(!error.message.isEmpty && error.file == "fuzz.toml", "it is not said what is wrong, or where")
            precondition((1...lines + 1).contains(error.line ?? 1), "there is no such line")
        }
    }
    do throws(ConfigurationErrors) { _ = try SessionConfiguration(file) } catch { check(error) }
    do throws(ConfigurationErrors) { _ = try DaemonConfiguration(file) } catch { check(error) }
}
