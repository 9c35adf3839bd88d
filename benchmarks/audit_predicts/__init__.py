"""Does an audit predict what training on a reward does to gold?"""
