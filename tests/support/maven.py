"""A project of Maven, and a stand-in for its wrapper."""

MAVEN_WRAPPER = r"""#!/bin/sh
# Prints what Maven prints. Cart.java compiles if each `return` ends with a semicolon; -Dtest finds no test.
if grep -n 'return[^;]*$' Cart.java; then
  echo '[WARNING] Failed to create parent directories for tracking file x.lastUpdated'
  echo '[INFO] BUILD FAILURE'
  echo '[ERROR] COMPILATION ERROR : '
  echo "[ERROR] $PWD/Cart.java:[1,42] ';' expected"
  exit 1
fi
case "$*" in *-Dtest=*) echo '[INFO] BUILD SUCCESS'; exit 0;; esac
if grep -q 'a - b' Cart.java; then
  echo '[ERROR] CartTest.adds -- Time elapsed: 0.01 s <<< FAILURE!'
  echo '[ERROR] CartTest.more -- Time elapsed: 0.01 s <<< FAILURE!'
  echo '[ERROR] Tests run: 2, Failures: 2, Errors: 0, Skipped: 0'
  exit 1
fi
echo '[INFO] Tests run: 2, Failures: 0, Errors: 0, Skipped: 0'
"""
"""A stand-in for Maven's wrapper, in a project with one class."""

MAVEN_PROJECT = {"pom.xml": "<project/>", "src/test/java/CartTest.java": "class CartTest {}\n"}
"""The files of that project besides the wrapper and its class."""


def make_java_class(statement: str) -> str:
    """The text of `Cart.java`, whose method has this statement."""
    return f"class Cart {{ static int total(int a, int b) {{\n{statement}\n}} }}\n"
