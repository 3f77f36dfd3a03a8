@testable import DurableStore

/// Faults of a store that is open, which keeps other connections out of its database.
extension DurableStore {
    func execute(_ statements: String) throws(StoreError) { try opened().execute(statements) }

    /// Makes every write fail, as in a directory that was made read-only.
    func setWritable(_ isWritable: Bool) throws(StoreError) {
        try execute("PRAGMA query_only = \(isWritable ? "OFF" : "ON")")
    }
}
