"""What people have becomes patches of a line: mails, a branch, a pile, edits of a package."""
