import Foundation
import Support
import Testing

/// `make install`, whose files the Debian package also has.
extension EndToEnd {
    @Test func `the installed files can be read, whatever the umask, and the pages link only to what is installed`()
        async throws
    {
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        let repository = repositoryRoot.path
        try await LabProcess.run(
            [
                "sh", "-c", "umask 077; exec make \"$@\"", "make", "-C", repository, "install",
                "RELEASE=\(DaemonProcess.programs)", "STRIP=", "PREFIX=/usr",
                "DESTDIR=\(directory.path)/root",
            ], files: "\(directory.path)/make", within: .seconds(1200))
        let closed = try await LabProcess.run(
            ["find", "\(directory.path)/root", "-not", "-perm", "-004"], files: "\(directory.path)/closed")
        #expect(closed == "")
        let folder = URL(filePath: "\(directory.path)/root/usr/share/doc/holdfast")
        let pages = FileManager.default.enumerator(at: folder, includingPropertiesForKeys: nil)?.allObjects
            .compactMap { $0 as? URL }.filter { $0.pathExtension == "md" }
        #expect(pages?.contains { $0.path.hasSuffix("/Documentation/Network.md") } == true)
        for page in pages ?? [] {
            let text = try String(contentsOf: page, encoding: .utf8)
            for link in text.matches(of: /\]\((?<target>[^)#\s]+)/).map({ String($0.target) })
            where !link.contains("://") {
                let file = page.deletingLastPathComponent().appendingPathComponent(link).standardizedFileURL
                #expect(FileManager.default.fileExists(atPath: file.path), "\(page.lastPathComponent): \(link)")
            }
        }
    }
}
