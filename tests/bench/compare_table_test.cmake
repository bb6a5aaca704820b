# Compares the table that compare.py makes of compare.json with the one that is kept.
execute_process(COMMAND ${PYTHON} -B ${COMPARE} --table ${FOLDER}/compare.json
  OUTPUT_VARIABLE made ERROR_VARIABLE error RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "compare.py --table ended with ${code}: ${error}")
endif()
file(READ ${FOLDER}/compare.md kept)
if(NOT made STREQUAL kept)
  message(FATAL_ERROR "the table differs from ${FOLDER}/compare.md:\n${made}")
endif()
