import MQTT
package import Session

// The room on the disk: some is kept free, so that what was accepted can always be acknowledged.

extension DurableStore {
    /// Runs `body`, which writes to the log first. If there is no room, it is tried again after the log was emptied,
    /// and then, if it must always succeed, in the room that is reserved for that.
    func withRoom(orSpare mayUseSpare: Bool, _ body: () throws(StoreError) -> Void) throws(StoreError) {
        do {
            return try body()
        } catch .full {
            try? emptyLog(of: opened())
        }
        do {
            return try body()
        } catch .full where mayUseSpare {
            guard directory.releaseSpare() else { throw .full(path: "\(directory.path)", cause: "no room is left") }
        }
        try body()
        try? emptyLog(of: opened())
    }

    /// Writes the log back into the file, and gives its room to the file system.
    private func emptyLog(of database: Database) throws(StoreError) {
        defer { files.forgetSizes() }
        try database.emptyLog()
    }

    /// Makes the spare file again after it was needed. Room that deleted rows left in the file is given back first.
    func makeSpareAgain() {
        while let space = directory.space, space.available < directory.reserve, (try? reclaim()) == true {}
        guard let space = directory.space, space.available >= directory.reserve / 2 else { return }
        directory.makeSpare()
    }

    /// Refuses messages while there is still room for everything else.
    ///
    /// - Parameter needed: bytes that will be written to the log, and then to the file.
    func requireRoom(for needed: UInt64) throws(StoreError) {
        guard needed > 0 else { return }
        while let space = directory.space, space.available < directory.reserve + 2 * needed {
            if try reclaim() { continue }
            throw .full(
                path: "\(directory.path)/\(Self.fileName)",
                cause:
                    "\(Self.text(space.available)) are left on the file system, and \(Self.text(directory.reserve)) are "
                    + "kept for acknowledgements")
        }
    }

    private static func text(_ bytes: UInt64) -> String {
        bytes < 1 << 20 ? "\(bytes / 1024) KiB" : "\(bytes >> 20) MiB"
    }

    /// Gives the room that removed rows left in the file back to the file system, a part at a time, because moving
    /// pages is written to the log first.
    ///
    /// - Returns: whether there was any.
    private func reclaim() throws(StoreError) -> Bool {
        let database = try opened()
        let free = try database.integer("PRAGMA freelist_count") ?? 0
        // One page of the list holds the list itself.
        guard free > 1 else { return false }
        // A pragma takes no bound value; this is our own number.
        let pages = min(max(directory.reserve / 4 / 4096, 4), 256)
        try withRoom(orSpare: true) { () throws(StoreError) in
            try database.execute("PRAGMA incremental_vacuum(\(pages))")
        }
        try emptyLog(of: database)
        return try database.integer("PRAGMA freelist_count") ?? 0 < free
    }
}

extension SessionChange {
    /// An estimate of the bytes that it adds to the file; only messages and publications count.
    package var roomNeeded: Int {
        switch self {
        case .mqtt(.insert(let stored)): stored.message.size
        case .putPublication(let publication): publication.size
        case .mqtt(.collect(let message, let consumers, _)): message.roomNeeded(by: consumers.count)
        default: 0
        }
    }
}
