import ControlAPI
import Glibc

/// The configuration as it would be with another text of one file: a folder with this file, and with links to the others.
struct DraftConfiguration {
    /// The file in the folder.
    let path: String
    private let file: String
    private let folder: String
    private let place: ConfigCommand.Place

    /// Creates the folder without the file.
    ///
    /// - Parameter file: the path below the configuration directory.
    /// - Returns: `nil` if there is no folder for temporary files.
    init?(of file: String, in place: ConfigCommand.Place) {
        var template = Array("\(Folder.temporary)/holdfastctl-XXXXXX".utf8CString)
        guard let made = mkdtemp(&template) else { return nil }
        folder = String(cString: made)
        (self.file, self.place, path) = (file, place, "\(folder)/\(file)")
        mkdir("\(folder)/sessions.d", 0o700)
        let sessions = (Folder.names(in: "\(place.configDirectory)/sessions.d") ?? []).map { "sessions.d/\($0)" }
        let original = Folder.resolved("\(place.configDirectory)/\(file)")
        for other in sessions + ["holdfast.toml"] where other != file {
            let source = "\(place.configDirectory)/\(other)"
            var status = stat()
            // A missing file is no error, but a link to one is.
            guard lstat(source, &status) == 0 else { continue }
            // A link to the file, such as an instance of a template, becomes a link to the draft.
            let isLink = original != nil && Folder.resolved(source) == original
            symlink(isLink ? path : source, "\(folder)/\(other)")
        }
    }

    func remove() {
        // An editor may have left files of its own.
        _ = ExternalProgram.run(["rm", "-rf", "--", folder])
    }

    /// Returns the errors of the file, and those of other files that they do not have without the draft, such as
    /// conflicts with it.
    ///
    /// - Parameter known: the errors before the file was edited; `nil`: those of other files do not matter.
    func errors(beside known: [ConfigurationProblem]?) throws(CommandFailure) -> [ConfigurationProblem] {
        let file = "\(place.configDirectory)/\(file)"
        return try allErrors().filter { $0.file == file || known?.contains($0) == false }
    }

    /// Returns the errors of all files.
    func allErrors() throws(CommandFailure) -> [ConfigurationProblem] {
        let configuration = try ConfigCommand.effective(place, draft: folder)
        let isService = place.configDirectory == ConfigCommand.Place.standard
        let hidden = isService ? ConfigCommand.hidden(ServiceUnit.hiddenFolders, in: configuration.files) : []
        return (configuration.errors + hidden).map { problem in
            var problem = problem
            problem.file.replace("\(folder)/", with: "\(place.configDirectory)/")
            problem.message.replace("\(folder)/", with: "\(place.configDirectory)/")
            return problem
        }
    }
}
