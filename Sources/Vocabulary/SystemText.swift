import Glibc

/// What an `errno` means, in the system's words, and what to do when a limit is reached that an administrator sets.
public func systemText(_ number: Int32) -> String {
    // The text is the calling thread's own since glibc 2.32.
    let words = strerror(number).map { String(cString: $0) } ?? "error \(number)"
    return switch number {
    case EMFILE: "\(words); raise LimitNOFILE of the service"
    case ENFILE: "\(words); raise the kernel's limit fs.file-max"
    default: words
    }
}
