import Foundation

/// libfaketime, which tells the programs that it is loaded into another time; the file says which.
public enum LabFakeClock {
    /// Its file, if it is installed.
    public static let library: String? = {
        let root = "/usr/lib"
        let folders = (try? FileManager.default.contentsOfDirectory(atPath: root)) ?? []
        return folders.map { "\(root)/\($0)/faketime/libfaketimeMT.so.1" }
            .first { FileManager.default.fileExists(atPath: $0) }
    }()

    /// A sanitizer's runtime asks for the time before the library is ready, and both wait for ever.
    public static let isInTheWay = Sanitizer.inUse != nil
}
