/// The tables that a file of some version has, to find those whose definition is damaged: one wrong letter makes a whole
/// table unreadable for SQLite.
struct KnownSchema {
    private struct Table {
        let name: String
        let sql: String
        let rowid: Int64
    }

    private let model: Database
    private let tables: [Table]

    /// - Parameter version: of the file; any other number than that of a version stands for the newest one.
    init(version: Int, migrations: [String]) throws(StoreError) {
        model = try Database(path: ":memory:")
        let known = Schema.versions(after: migrations)
        for (each, statements) in zip(known, migrations) where each <= version || !known.contains(version) {
            try model.execute(statements)
        }
        tables = try model.rows(
            "SELECT name, sql, rowid FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ) { Table(name: $0.text(0), sql: $0.text(1), rowid: $0.integer(2)) }
    }

    /// The first table that does not have all of its columns in the database.
    func damagedTable(in database: Database) throws(StoreError) -> String? {
        for table in tables where try !isIntact(table.name, in: database) { return table.name }
        return nil
    }

    /// The same, or an index or a trigger that the database does not have, word for word, each after what it is.
    func damagedDefinition(in database: Database) throws(StoreError) -> String? {
        if let table = try damagedTable(in: database) { return "table \(table)" }
        let lost = try Self.definitions(in: model).subtracting(Self.definitions(in: database))
        return lost.first { $0[0] == "index" || $0[0] == "trigger" }.map { "\($0[0]) \($0[1])" }
    }

    /// Whether the database has these tables, views, indexes and triggers, word for word, and no others.
    func isExactly(that database: Database) throws(StoreError) -> Bool {
        try Self.definitions(in: database) == Self.definitions(in: model)
    }

    private static func definitions(in database: Database) throws(StoreError) -> Set<[String]> {
        Set(try database.rows("SELECT type, name, sql FROM sqlite_schema") { row in (0..<3).map { row.text($0) } })
    }

    private func isIntact(_ table: String, in database: Database) throws(StoreError) -> Bool {
        try Self.columns(of: table, in: model).isSubset(of: Self.columns(of: table, in: database))
    }

    private static func columns(of table: String, in database: Database) throws(StoreError) -> Set<[String]> {
        Set(
            try database.rows("SELECT name, type, [notnull], dflt_value, pk FROM pragma_table_info(?)", .text(table)) {
                row in (0..<5).map { row.text($0) }
            })
    }

    /// Gives damaged tables their definition back, for this connection only: the file stays as it is.
    ///
    /// - Returns: whether all tables can be read now.
    func restore(in damaged: Database) throws(StoreError) -> Bool {
        // Without this, one definition that makes no sense makes all tables unreadable.
        try damaged.execute("PRAGMA writable_schema = ON")
        guard try damagedTable(in: damaged) != nil else { return true }
        // What is changed must never be written, not even because there is no memory for it.
        try damaged.execute("PRAGMA cache_spill = OFF; BEGIN")
        let found = try damaged.rows("SELECT rowid, name FROM sqlite_schema") { ($0.integer(0), $0.text(1)) }
        for table in tables where try !isIntact(table.name, in: damaged) {
            // If its name is damaged, it is in the place where it was made, unless that has another known name.
            let place =
                found.first { $0.1 == table.name }
                ?? found.first { found in found.0 == table.rowid && !tables.contains { $0.name == found.1 } }
            guard let place else { continue }
            try damaged.run(
                "UPDATE sqlite_schema SET type = 'table', name = ?1, tbl_name = ?1, sql = ?2 WHERE rowid = ?3",
                .text(table.name), .text(table.sql), .integer(place.0))
        }
        try damaged.execute("PRAGMA writable_schema = RESET; PRAGMA writable_schema = ON")
        return try damagedTable(in: damaged) == nil
    }
}
