internal import Vocabulary

/// A new database that takes the place of one that is damaged or gone.
///
/// It is filled under another name, and the old one stays as it is until the new one has everything and is on the disk.
/// Then a note says so, and only then files are renamed. So a kill or a loss of power at any moment leaves one of these:
///
/// | note | new database | what the next start does |
/// | --- | --- | --- |
/// | none | perhaps, in part | it discards that, and finds the damage again |
/// | there | there | it goes on with renaming |
/// | there | renamed already | it tells what happened |
///
/// A new database that is not complete says so itself, because nothing else may be left of one whose files were removed
/// under a running daemon.
struct Renewal {
    /// The name of the new database until it is complete.
    static let newName = DurableStore.fileName + ".new"
    /// Exists from when the new database is complete until it is in use.
    static let noteName = DurableStore.fileName + ".renewal"
    /// What the name of a damaged log ends with, after one was made of it that SQLite can read.
    static let damagedLogSuffix = "-damaged-wal"
    /// The `application_id` of a database that is being filled.
    private static let partID: Int64 = 0x486F_6C64

    /// The name that the old database gets, if there is anything left of it.
    private let aside: String
    private let report: OpenReport.MovedAside
    var isSeamless: Bool { report.isSeamless }

    /// - Parameter report: its path is found when the files have been renamed.
    init(_ report: OpenReport.MovedAside) {
        aside = "\(DurableStore.fileName).corrupt-\(Timestamp.now.rawValue)"
        self.report = report
    }

    // MARK: The new database

    static func begin(_ new: Database) throws(StoreError) { try new.execute("PRAGMA application_id = \(partID)") }

    /// Brings the new database to the disk, and closes it.
    static func complete(_ new: Database) throws(StoreError) {
        try new.execute("PRAGMA application_id = 0")
        try new.emptyLog()
        new.close()
    }

    /// Whether the daemon was ended while it filled this one.
    static func isPart(_ database: Database) throws(StoreError) -> Bool {
        try database.integer("PRAGMA application_id") == partID
    }

    // MARK: The names

    /// Must be called when the new database is complete. From then on, the old one is not used any more.
    func note(in directory: borrowing StateDirectory) throws(StoreError) {
        try directory.sync()
        let lines = [aside, report.isComplete ? "complete" : "incomplete", "\(report.messages)", report.cause]
        try directory.write(lines.joined(separator: "\n"), to: Self.noteName)
    }

    /// - Returns: `nil` if there is no note.
    private init?(notedIn directory: borrowing StateDirectory) {
        guard let bytes = try? fileContents("\(directory.path)/\(Self.noteName)", atMost: 1 << 16) else { return nil }
        let lines = String(decoding: bytes, as: UTF8.self).split(
            separator: "\n", maxSplits: 3, omittingEmptySubsequences: false)
        guard lines.count == 4 else { return nil }
        aside = String(lines[0])
        report = OpenReport.MovedAside(
            cause: String(lines[3]), messages: Int(lines[2]) ?? 0, isComplete: lines[1] == "complete")
    }

    /// Gives the new database its name, unless it has it already.
    func rename(in directory: borrowing StateDirectory) throws(StoreError) {
        guard directory.contains(Self.newName) else { return }
        for suffix in DurableStore.fileSuffixes {
            try directory.rename(DurableStore.fileName + suffix, to: aside + suffix)
        }
        // SQLite would put the old log on top of the new database.
        try directory.sync()
        try directory.rename(Self.newName, to: DurableStore.fileName)
        directory.remove(Self.newName)
        try directory.sync()
    }

    /// Removes the note, when the new database is in use.
    ///
    /// - Returns: what is to be told.
    func end(in directory: borrowing StateDirectory) throws(StoreError) -> OpenReport.MovedAside {
        try directory.removeFile(Self.noteName)
        try directory.sync()
        var report = report
        if ["", "-wal"].contains(where: { directory.contains(aside + $0) }) {
            report.path = "\(directory.path)/\(aside)"
        }
        return report
    }

    // MARK: Beginning again

    /// Goes on with what a daemon that was ended has begun.
    ///
    /// - Returns: the renewal that is not told yet, if there is one.
    static func resume(in directory: borrowing StateDirectory) throws(StoreError) -> Renewal? {
        if let renewal = Renewal(notedIn: directory) {
            try renewal.rename(in: directory)
            return renewal
        }
        let name = DurableStore.fileName
        if directory.contains(newName), !directory.contains(name), !directory.contains(name + "-wal") {
            // All that is left. Its log first: without its log it would be another database.
            for suffix in ["-wal", ""] { try directory.rename(newName + suffix, to: name + suffix) }
        }
        try discard(in: directory)
        return nil
    }

    /// Puts everything back as it was before.
    static func discard(in directory: borrowing StateDirectory) throws(StoreError) {
        try directory.removeFile(noteName)
        directory.remove(newName)
        try directory.rename(
            DurableStore.fileName + damagedLogSuffix, to: DurableStore.fileName + "-wal")
    }
}
