"""What programs and training steps take on shaped links between the processes of one machine."""
