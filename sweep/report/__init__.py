"""What people read: report.html, the table, the terminal."""
