"""placeholder"""
def add_commands(subparsers): pass
