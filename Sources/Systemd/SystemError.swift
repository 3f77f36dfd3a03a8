internal import Glibc

/// What an `errno` means, in the system's words.
enum SystemError {
    static func text(_ code: Int32) -> String {
        // The text is the calling thread's own since glibc 2.32.
        strerror(code).map { String(cString: $0) } ?? "error \(code)"
    }
}
