python3 -B -c "from basket import total_of; assert total_of([1, 2]) == 3"
