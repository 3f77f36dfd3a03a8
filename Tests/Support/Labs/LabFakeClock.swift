import Foundation

/// libfaketime, which gives the programs that load it another time; a file says which.
public enum LabFakeClock {
    /// The path of the library, if it is installed.
    public static let library: String? = {
        let root = "/usr/lib"
        let folders = (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []
        return folders.map { "\(root)/\($0)/faketime/libfaketimeMT.so.1" }
            .first { FileManager.default.fileExists(atPath: $0) }
    }()

    /// A sanitizer's runtime asks for the time before the library is ready, and both wait forever.
    public static let isInTheWay = Sanitizer.inUse != nil
}
