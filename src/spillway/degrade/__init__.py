"""What goes, if work may go instead of rows? Optional subtasks, and which of them to leave out."""
